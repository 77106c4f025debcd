"""The command line. It knows the calls that users make in Python and the words of the terminal, and decides nothing."""
