"""A Matrix bot for rooms without encryption. Needs DRAGOMAN_TOKEN, MATRIX_URL, MATRIX_USER and MATRIX_TOKEN."""

import os
import time
import uuid
from pathlib import Path
from urllib.parse import quote

from dragoman_bot import UNFIT, Bot, fetch

API = f"{os.environ['MATRIX_URL']}/_matrix/client/v3"
BEARER, ME = {"Authorization": f"Bearer {os.environ['MATRIX_TOKEN']}"}, os.environ["MATRIX_USER"]
SINCE = Path(os.environ.get("MATRIX_SINCE", "matrix.since"))  # messages of while the bot is away come after it
APPROVING, DENYING = "👍", "👎"
MOST = 15_000  # characters of an event of 65,536 bytes
bot = Bot("matrix")


def say(room, text, **more):
    for at in range(0, len(text), MOST):
        path = f"{API}/rooms/{quote(room)}/send/m.room.message/{uuid.uuid4()}"
        fetch(path, {"msgtype": "m.notice", "body": text[at : at + MOST], **more}, "PUT", **BEARER)


def ask(room, text, question):
    say(room, f"{text}\nReact with {APPROVING} or {DENYING} to this message.", dragoman=question)


def on_event(room, event):
    content, sender = event["content"], event["sender"]
    if sender == ME:
        return
    if event["type"] == "m.room.message" and content.get("msgtype") == "m.text":
        speak = {"say": lambda words: say(room, words), "ask": lambda words, one: ask(room, words, one)}
        bot.handle(content["body"], chat=room, member=sender, once=event["event_id"], **speak)
    elif event["type"] == "m.reaction" and (relation := content.get("m.relates_to")):
        key, path = relation["key"].rstrip("\ufe0f"), f"{API}/rooms/{quote(room)}/event/{quote(relation['event_id'])}"
        asked = fetch(path, **BEARER)
        if key in (APPROVING, DENYING) and asked["sender"] == ME and (question := asked["content"].get("dragoman")):
            say(room, bot.decide(question, sender, approve=key == APPROVING))


since = SINCE.read_text() if SINCE.exists() else fetch(f"{API}/sync?timeout=0", **BEARER)["next_batch"]
while True:
    try:
        synced = fetch(f"{API}/sync?timeout=30000&since={quote(since)}", **BEARER)
        for room in synced.get("rooms", {}).get("invite", {}):
            fetch(f"{API}/join/{quote(room)}", {}, **BEARER)
        for room, news in synced.get("rooms", {}).get("join", {}).items():
            for event in news["timeline"]["events"]:
                try:
                    on_event(room, event)
                except UNFIT as refused:  # a room that the bot has left, a message of another form
                    print(f"not answered: {refused!r}", flush=True)
        SINCE.write_text(since := synced["next_batch"])
    except OSError as problem:
        print(f"not reached, trying again: {problem}", flush=True)
        time.sleep(2)
