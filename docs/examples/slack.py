"""A Slack bot by the Events API. Needs DRAGOMAN_TOKEN, SLACK_TOKEN (xoxb-...) and SLACK_SECRET (signing secret).

Point the app's Event Subscriptions (message.channels, message.im) and its Interactivity URL here, by HTTPS.
"""

import hashlib
import hmac
import json
import os
import time
from urllib.parse import parse_qs

from dragoman_bot import Bot, fetch, serve

API = os.environ.get("SLACK_URL", "https://slack.com/api")
KEY, MOST = os.environ["SLACK_SECRET"].encode(), 3000
bot = Bot("slack")


def say(channel, text, **more):
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")  # no <!channel> of a model's
    for at in range(0, len(text), MOST):
        body = {"channel": channel, "text": text[at : at + MOST], **more}
        fetch(f"{API}/chat.postMessage", body, Authorization=f"Bearer {os.environ['SLACK_TOKEN']}")


def ask(channel, text, question):
    named = [{"type": "button", "text": {"type": "plain_text", "text": one}, "action_id": one} for one in ("Yes", "No")]
    buttons = {"type": "actions", "elements": [button | {"value": question} for button in named]}
    words = {"type": "section", "text": {"type": "plain_text", "text": text[:MOST]}}
    say(channel, text[:MOST], blocks=[words, buttons])


def on_request(sent, headers):
    at = headers.get("X-Slack-Request-Timestamp", "0")
    expected = "v0=" + hmac.new(KEY, b"v0:" + at.encode() + b":" + sent, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, headers.get("X-Slack-Signature", "")) or abs(time.time() - float(at)) > 300:
        return 401, {}
    if sent.startswith(b"payload="):
        pressed = json.loads(parse_qs(sent.decode())["payload"][0])
        [action, *_], channel = pressed["actions"], pressed["channel"]["id"]
        say(channel, bot.decide(action["value"], pressed["user"]["id"], approve=action["action_id"] == "Yes"))
        return 200, {}
    body = json.loads(sent)
    event = body.get("event", {})
    if event.get("type") == "message" and not event.get("bot_id") and not event.get("subtype"):
        channel, speak = event["channel"], {"member": event["user"], "once": body["event_id"]}
        speak |= {"say": lambda words: say(channel, words), "ask": lambda words, one: ask(channel, words, one)}
        bot.handle(event["text"], chat=channel, **speak)
    return 200, {"challenge": body.get("challenge")}


serve(3000, on_request)
