"""What is typed for each command, as its help shows it: it works on a database with a conversation `trip`."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final[dict[str, dict[str, str]]] = {
    "": {
        "tailfold demo": "see it work, in a folder of its own",
        "tailfold import chat.json": "take in what another program kept",
        "tailfold conversations": "what there is, newest first",
        "tailfold show trip": "read one",
        "tailfold --data other.db show trip": "of another database; --data may also come last",
    },
    "demo": {
        "tailfold demo": "",
        "tailfold demo --keep demo-files": "keep the database, to look at it with the other commands",
    },
    "play": {
        "tailfold play stream.sse --conversation new-trip": "",
        "tailfold play stream.sse --conversation slow-trip --rate 100": "",
    },
    "conversations": {
        "tailfold conversations": "",
        "tailfold conversations --limit 20 --label work": "",
        "tailfold conversations --title Lyon --json": "",
    },
    "runs": {
        "tailfold runs": "",
        "tailfold runs trip --status open": "",
        "tailfold runs --limit 20 --json": "",
    },
    "show": {
        "tailfold show trip": "",
        "tailfold show trip --limit 2": "the last two messages",
        "tailfold show trip --branch all": "turns that were replaced, too",
        "tailfold show trip --select r1.1=r1.2": "the path through another turn, as `tree` shows it",
    },
    "tree": {
        "tailfold tree trip": "",
        "tailfold tree trip --json": "",
    },
    "context": {
        "tailfold context trip --explain": "what was left out or shortened, and why",
        "tailfold context trip --max-ctx 2": "",
        "tailfold context trip --format anthropic": "as it would be sent",
    },
    "events": {
        "tailfold events trip": "",
        "tailfold events trip --after 10 --json": "",
        "tailfold events trip --follow": "go on until Ctrl-C",
    },
    "select": {
        "tailfold select trip r1.2": "follow that turn again",
    },
    "describe": {
        "tailfold describe trip --title 'A trip to Lyon' --label work --label travel": "",
        "tailfold describe trip --archive": "",
    },
    "cancel": {
        "tailfold cancel r4": "the program that writes it ends it",
    },
    "recover": {
        "tailfold recover r4 --action commit": "keep what it has said so far",
        "tailfold recover r4 --action fail": "keep only its finished messages",
    },
    "compact": {
        "tailfold compact trip --dry-run": "how far could the log go, and what binds it",
        "tailfold compact trip --replay-window 100": "keep the last 100 events for clients that come back",
        "tailfold compact --all": "",
    },
    "snapshot": {
        "tailfold snapshot trip": "",
        "tailfold snapshot trip --save": "",
    },
    "export": {
        "tailfold export trip --output trip.jsonl": "`tailfold import trip.jsonl` makes it again",
        "tailfold export trip --format chat": "messages as OpenAI's Chat Completions take them",
        "tailfold export --all --output all.jsonl.gz": "",
    },
    "import": {
        "tailfold import chat.json": "",
        "tailfold import chat.json --into trip-2 --format chat": "",
        "tailfold import exports --skip-broken": "all files of a folder",
    },
    "verify": {
        "tailfold verify": "",
        "tailfold verify trip": "",
    },
    "reconcile": {
        "tailfold reconcile": "",
        "tailfold reconcile --repair": "project again what the log still has",
    },
    "stats": {
        "tailfold stats": "",
        "tailfold stats trip --json": "",
    },
    "backup": {
        "tailfold backup copy.db": "also while programs write",
    },
    "restore": {
        "tailfold restore copy.db --data restored.db": "",
    },
    "copy": {
        "tailfold copy tailfold.db postgresql://user@host/database": "the same command goes on after a stop",
        "tailfold copy postgresql://user@host/database kept.db": "and back",
    },
    "vacuum": {
        "tailfold vacuum": "",
    },
    "erase": {
        "tailfold erase trip": "asks first",
        "tailfold erase trip plans --yes": "two at once",
    },
    "sql": {
        "tailfold sql \"SELECT id, json_extract(body, '$.role') AS role FROM messages\"": "",
        "tailfold sql \"SELECT count(*) AS n FROM messages WHERE body LIKE '%train%'\" --json": "",
    },
    "serve": {
        "tailfold serve --port 8000": "",
        "tailfold serve --host 0.0.0.0 --tokens tokens.txt --cors https://app.example": "",
    },
    "history": {
        "tailfold history list": "",
    },
    "history list": {
        "tailfold history list --config chain.json": "",
    },
    "history chain-add": {
        "tailfold history chain-add plugin_history_short --config chain.json": "",
    },
    "history chain-remove": {
        "tailfold history chain-remove plugin_history_short --config chain.json": "",
    },
    "history chain-move": {
        "tailfold history chain-move plugin_history_short 1 --config chain.json": "",
    },
    "history maxctx": {
        "tailfold history maxctx 200 --config chain.json": "",
    },
    "limits": {
        "tailfold limits max-users 50": "",
    },
    "limits max-users": {
        "tailfold limits max-users 50 --config chain.json": "",
    },
    "limits session-timeout": {
        "tailfold limits session-timeout 30 --config chain.json": "0 is for ever",
    },
}
"""By command: what is typed, and what is said of it."""
