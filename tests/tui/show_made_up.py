"""Shows the screen on the made-up session: for the tests in a real terminal, and for measuring.

    python tests/tui/show_made_up.py [--kernels N] [--gpus N] [--hz HZ] [--fail] [--deaf]

`--gpus` shows a host with that many GPUs and no kernels.
`--fail` makes all ticks from the third on such that the screen cannot be built; `--deaf` a consumer that
takes for ever to close.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

from roofmon.config import Config
from roofmon.errors import RoofmonError
from roofmon.tui.run import run


def main() -> int:
    """Run the screen; returns its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", type=int, default=13)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--hz", type=float, default=2.0)
    parser.add_argument("--unicode", default="auto")
    parser.add_argument("--theme", default="roofmon-dark")
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    args = parser.parse_args()

    class Ticking:
        """A source that imports numpy in its thread, as the consumer does, and ticks by itself."""

        def __init__(self, on_change: Callable[[], None]) -> None:
            self.snapshot = None
            self.state = "starting"
            self._on_change = on_change
            self._ended = threading.Event()

        def start(self) -> None:
            threading.Thread(target=self._run, daemon=True).start()

        def send(self, command: object) -> bool:
            return True

        def close(self) -> None:
            self._ended.set()
            if args.deaf:
                time.sleep(3600)

        def _run(self) -> None:
            from made_up import gpus, snapshot

            tick = 0
            while not self._ended.wait(1 / args.hz):
                tick += 1
                made = gpus(args.gpus, tick) if args.gpus else snapshot(tick, args.kernels)
                if args.fail and tick >= 3:
                    made = replace(made, kernels=None)
                self.snapshot, self.state = made, ""
                self._on_change()

    try:
        return run(Ticking, Config(unicode=args.unicode, theme=args.theme))
    except RoofmonError as error:
        print(f"roofmon: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
