"""A Discord bot by interactions over HTTP: /ask TEXT. Needs `pip install cryptography` and the variables below.

Point the application's Interactions Endpoint URL here, by HTTPS. Reading all messages would need the gateway.
"""

import json
import os

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from dragoman_bot import Bot, fetch, serve

API, APP = os.environ.get("DISCORD_URL", "https://discord.com/api/v10"), os.environ["DISCORD_APPLICATION"]
KEY = Ed25519PublicKey.from_public_bytes(bytes.fromhex(os.environ["DISCORD_PUBLIC_KEY"]))
AGENT, MOST = {"User-Agent": "DiscordBot (https://example.org, 1)"}, 1900
bot = Bot("discord")


def say(token, text, **more):
    for at in range(0, len(text), MOST):  # for 15 minutes after the command
        body = {"content": text[at : at + MOST], "allowed_mentions": {"parse": []}, **more}
        fetch(f"{API}/webhooks/{APP}/{token}", body, **AGENT)


def ask(token, text, question):
    buttons = [{"type": 2, "style": 2, "label": one, "custom_id": f"{one} {question}"} for one in ("Yes", "No")]
    say(token, text[:MOST], components=[{"type": 1, "components": buttons}])


def on_interaction(sent):
    member = (sent.get("member") or sent)["user"]["id"] if sent["type"] != 1 else ""
    match sent["type"]:
        case 2:
            token, option = sent["token"], sent["data"]["options"][0]
            speak = {"say": lambda words: say(token, words), "ask": lambda words, one: ask(token, words, one)}
            fetch(f"{API}/interactions/{sent['id']}/{token}/callback", {"type": 5}, **AGENT)  # the answer follows
            bot.handle(option["value"], chat=sent["channel_id"], member=member, once=sent["id"], **speak)
            return 202, {}
        case 3:
            word, question = sent["data"]["custom_id"].split(" ")
            return 200, {"type": 4, "data": {"content": bot.decide(question, member, approve=word == "Yes")}}
    return 200, {"type": 1}


def on_request(sent, headers):
    stamp, signature = headers.get("X-Signature-Timestamp", ""), headers.get("X-Signature-Ed25519", "")
    try:
        KEY.verify(bytes.fromhex(signature), stamp.encode() + sent)
        return on_interaction(json.loads(sent))
    except (InvalidSignature, ValueError):
        return 401, {}
    except OSError:
        return 200, {"type": 4, "data": {"content": "The agent is not reached. Try again later."}}


option = {"name": "text", "type": 3, "description": "your message, or /link CODE", "required": True}
command = {"name": "ask", "description": "Ask the agent", "options": [option]}
fetch(f"{API}/applications/{APP}/commands", command, Authorization=f"Bot {os.environ['DISCORD_TOKEN']}", **AGENT)
serve(3001, on_request)
