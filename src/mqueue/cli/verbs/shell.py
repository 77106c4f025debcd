"""What the command line says of itself: its version, and how shells complete it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mqueue.cli.verb import RUN, local_verb

VARIABLE = "_MQUEUE_COMPLETE"
"""Set by a shell that asks what could follow."""


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def add(app: typer.Typer) -> None:
    local_verb(app, "completion", RUN)(completion)
    local_verb(app, "version", RUN)(version)


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)]) -> None:
    """Print what makes a shell complete our words: eval "$(mqueue completion bash)"."""
    print(_SCRIPTS[shell])


def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    print(f"mqueue {installed('mqueue')}")


# What they ask is answered by typer, which runs the program with this variable set.
_SCRIPTS = {
    Shell.bash: f"""_mqueue_completion() {{
    local IFS=$'\\n'
    COMPREPLY=($(COMP_WORDS="${{COMP_WORDS[*]}}" COMP_CWORD=$COMP_CWORD {VARIABLE}=complete_bash mqueue))
}}
complete -o default -F _mqueue_completion mqueue""",
    Shell.zsh: f"""_mqueue_completion() {{
    eval "$(_TYPER_COMPLETE_ARGS="${{words[1,$CURRENT]}}" {VARIABLE}=complete_zsh mqueue)"
}}
compdef _mqueue_completion mqueue""",
    Shell.fish: f"""function _mqueue_completion
    env _TYPER_COMPLETE_ARGS=(commandline -cp) _TYPER_COMPLETE_FISH_ACTION=get-args {VARIABLE}=complete_fish mqueue
end
complete --command mqueue --no-files --arguments '(_mqueue_completion)'""",
}
