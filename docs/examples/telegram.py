"""A Telegram bot. Needs DRAGOMAN_TOKEN, made with --members, and TELEGRAM_TOKEN of @BotFather."""

import os
import time

from dragoman_bot import UNFIT, Bot, fetch

API = f"{os.environ.get('TELEGRAM_URL', 'https://api.telegram.org')}/bot{os.environ['TELEGRAM_TOKEN']}"
MOST = 4000  # characters of a message
bot = Bot("telegram")


def call(method, **body):
    return fetch(f"{API}/{method}", body)["result"]


def say(chat, text):
    for at in range(0, len(text), MOST):
        call("sendMessage", chat_id=chat, text=text[at : at + MOST])


def ask(chat, text, question):
    buttons = [{"text": word, "callback_data": f"{word} {question}"} for word in ("Yes", "No")]
    call("sendMessage", chat_id=chat, text=text[:MOST], reply_markup={"inline_keyboard": [buttons]})


def on_update(update):
    if (message := update.get("message")) and (text := message.get("text")):
        chat, sender = message["chat"]["id"], message.get("sender_chat") or message["from"]  # who writes for a group
        bot.handle(
            text,
            chat=chat,
            member=str(sender["id"]),
            once=update["update_id"],
            say=lambda words: say(chat, words),
            ask=lambda words, question: ask(chat, words, question),
        )
    elif pressed := update.get("callback_query"):
        word, question = pressed["data"].split(" ")
        words = bot.decide(question, str(pressed["from"]["id"]), approve=word == "Yes")
        call("answerCallbackQuery", callback_query_id=pressed["id"], text=words[:200])


offset = 0  # Telegram keeps an update until a later offset is sent: none is lost while dragoman is away
while True:
    try:
        for update in call("getUpdates", offset=offset, timeout=50, allowed_updates=["message", "callback_query"]):
            try:
                on_update(update)
            except UNFIT as refused:  # a chat that has blocked the bot, a message of another form
                print(f"not answered: {refused!r}", flush=True)
            offset = update["update_id"] + 1
    except OSError as problem:
        print(f"not reached, trying again: {problem}", flush=True)
        time.sleep(2)
