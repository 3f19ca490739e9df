"""Texts as the index of words has them, and the words of a search.

The index knows words with spaces between them. Scripts that write none are indexed by the character, and searched by
pairs of neighbours; of longer words an inflected form is found by its beginning.
"""

from __future__ import annotations

import hashlib
import unicodedata

from tools.base.patterns import lazy_pattern

MOST_WORDS = 48  # of a search
LONGEST = 64  # characters of a word
MOST_READ = 8_000  # characters of a search
ENDING, STEM = 2, 5  # letters that an inflected form may have in place of others, behind at least so many
# Thai, Lao, Burmese, Khmer, Japanese, Chinese; and Korean, whose words end in particles.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_ONE_UNSPACED = lazy_pattern(f"([{_UNSPACED}])")
_TOKEN = lazy_pattern(rf"[{_UNSPACED}]+|[^\W_]+")
_SPACE = lazy_pattern(r"\s+")
# Words that say nothing of what a text is about: they are not searched, and no memory is recalled for one. Function
# words, auxiliary verbs, question words and greetings.
_ENGLISH = """
a about after all also am an and any are as at be been but by can could did do does for from get got had has have he her
hello hey hi him his how i if in into is it its just know let like me more my no not of ok okay on or our out please she
should so some tell than thank thanks that the their them then there these they this to up us was we were what when
where which who whom whose why will with would yes you your
"""
_GERMAN = """
aber als am an auch auf aus bei bin bist bitte da danke dann das dass dein deine dem den der des die doch du ein eine
einem einen einer eines er es für gibt habe haben hallo hast hat hatte ich ihm ihn ihr im in ist ja kann kein keine
kannst man mein meine meinem meinen meiner mich mir mit nach nein nicht noch nur oder schon sehr sein seine sich sie
sind so um und uns unser von vor war waren warum was welche welchem welchen welcher welches wem wen wenn wer werden wie
wieder wir wird wo wofür worauf woher wohin zu zum zur über
"""
_FRENCH = """
ai as au aux avec bonjour ce cela ces cet cette chez comment dans de depuis des donc du elle elles en est et eu il ils
je la le les leur leurs lui ma mais me merci mes moi mon ne nos notre nous on ont ou où par pas pour pourquoi quand que
quel quelle quelles quels qui quoi sa sans se ses si son sont sur ta te tes toi ton tu un une va vos votre vous à était
être
"""
_SPANISH = """
al algo como con cuál cuáles cuándo cuánto cómo de del desde dónde donde el ella ellos en era es esa ese eso esta este
esto está están fue gracias ha hay he hola la las le les lo los me mi mis muy más ni no nos o para pero por porque qué
que quién quiénes se ser si sin sobre son soy su sus te tengo tiene tienen tu tus un una y ya yo
"""
_PORTUGUESE = """
ao aos as com da das de do dos e ela ele em eu foi há isso isto já mas me meu meus minha minhas na nas no nos não o
obrigado olá os ou para pela pelo por qual quais quando quem se sem ser seu seus sua suas são também tem tenho um uma
você é à
"""
_ITALIAN = """
al alla ai che chi ci ciao come con cosa da dal dei del della delle di dove e ed gli grazie ha hai ho i il in io l la le
lo ma mi mia mie miei mio nel nella non o per perché più quale quali quando questa questo sono su sua suo ti tu tua tuo
un una è
"""
_RUSSIAN = """
а бы был была были было в вам вас во вот все вы где да для до его ее если есть еще же за и из или им их к как какая
какие какой какую кем когда кого кому кто ли меня мне мной мои мой мою моя моего моей моих на нас не него нет но о об он
она они от по почему при с сколько со спасибо так там то тоже только ты у уже что это эта этот я
"""
STOP_WORDS = frozenset(
    word for words in (_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _PORTUGUESE, _ITALIAN, _RUSSIAN) for word in words.split()
)
# Pairs of characters of a Chinese or Japanese question rather than of what it is about.
_PAIRS = """
什么 怎么 哪里 哪个 我的 你的 是什 多少 すか です ます した たか どこ なに 私の 何で のは
"""
STOP_PAIRS = frozenset(_PAIRS.split())


def as_indexed(text: str) -> str:
    """The text with spaces between characters of scripts that write none."""
    return _SPACE.sub(" ", _ONE_UNSPACED.sub(r" \1 ", _plain(text))).strip()


def search_words(query: str) -> list[list[str]]:
    """The phrases of index words to search for; a `*` at the end of a word stands for any ending."""
    found: dict[tuple[str, ...], None] = {}
    for token in _TOKEN.findall(_plain(query[:MOST_READ])):
        for phrase in _phrases(token.lower()[:LONGEST]):
            found.setdefault(phrase)
            if len(found) >= MOST_WORDS:
                return list(map(list, found))
    return list(map(list, found))


def _phrases(token: str) -> list[tuple[str, ...]]:
    if _ONE_UNSPACED.match(token):
        pairs = [token[at : at + 2] for at in range(max(1, len(token) - 1))]
        return [tuple(pair) for pair in pairs if pair not in STOP_PAIRS]
    if token in STOP_WORDS or (len(token) == 1 and not token.isdigit()):
        return []
    if token.isalpha() and len(token) >= STEM + ENDING:
        return [(token,), (f"{token[:-ENDING]}*",)]
    return [(token,), (f"{token}*",)] if token.isalpha() and len(token) >= STEM else [(token,)]


def digest_of(text: str) -> str:
    """Equal for texts that differ in nothing but case, spaces and the mark at the end."""
    return hashlib.sha256(digest_form(text).encode("utf-8", "surrogatepass")).hexdigest()


def digest_form(text: str) -> str:
    """The text without what makes no difference."""
    return _SPACE.sub(" ", _plain(text).casefold()).strip(" .!")


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text)
