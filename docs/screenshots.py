"""Take the README's pictures: the default pair answers, and the app draws itself as SVG.

    python docs/screenshots.py [--prompt TEXT] [--out docs]

Nothing in them is made up: they show whatever this machine measured and the pair said.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from localspec.chat.chat import Chat
from localspec.chat.engine_thread import EngineThread, open_session
from localspec.chat.settings import ChatSettings
from localspec.tui.app import ChatApp

PROMPT = "Explain in one paragraph why a hash table is fast, and when it is not."


async def until(condition: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"it took more than {seconds:.0f} s")
        await asyncio.sleep(0.02)


def save(app: ChatApp, path: Path) -> None:
    """The screen as SVG, without the web fonts that Textual links to."""
    svg = app.export_screenshot(title="localspec")
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.S)
    path.write_text(svg, "utf-8")
    print(f"{path}: {len(svg) / 1e3:.0f} kB")


def rejected_in_sight(app: ChatApp) -> bool:
    live, view = app.chat.live, app.widgets.transcript.live_view
    if live is None or view is None:
        return False
    return len(live.text) > 250 and view.shows_rejected


async def take(args: argparse.Namespace) -> None:
    settings = ChatSettings(
        args.target,
        args.draft,
        answering={
            "temperature": 0.0,
            "max_tokens": 400,
            **({"n_draft": args.n_draft} if args.n_draft else {}),
        },
        loading={"n_ctx": 4096},
    )
    app = ChatApp(Chat(EngineThread(open_session), settings), may_fetch=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: app.chat.pair is not None)
        app.widgets.composer.put(args.prompt)
        await pilot.press("enter")
        await until(lambda: rejected_in_sight(app) or (app.chat.figures and not app.chat.is_busy))
        await asyncio.sleep(0.1)
        save(app, args.out / "chat-inline.svg")
        await until(lambda: not app.chat.is_busy)
    await inspect(app, args)


async def inspect(app: ChatApp, args: argparse.Namespace) -> None:
    """The same chat again in a wide window, with its rounds."""
    wide = ChatApp(app.chat, may_fetch=True)
    wide._begin = lambda: None  # type: ignore[method-assign]
    async with wide.run_test(size=(130, 38)) as pilot:
        await pilot.press("ctrl+t")
        await pilot.pause()
        lane = wide.widgets.inspector.lane
        rounds = lane.rounds
        rejecting = [i for i, r in enumerate(rounds) if r.n_draft > r.n_accepted]
        at = next((i for i in rejecting if rounds[i].n_accepted), rejecting[0] if rejecting else 0)
        lane.focus()
        lane.action_round(at - lane.at)
        await asyncio.sleep(0.5)
        await pilot.pause()
        save(wide, args.out / "chat-inspector.svg")
    app.chat.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--target", default="default")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--n-draft", type=int)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALSPEC_DATA"] = folder
        asyncio.run(take(args))


if __name__ == "__main__":
    main()
