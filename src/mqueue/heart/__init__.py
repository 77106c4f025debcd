"""Who may work on what until when: the delivery state of every group."""
