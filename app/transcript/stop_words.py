"""Words that say nothing of what a text is about: function words, auxiliary verbs, question words and greetings."""

from __future__ import annotations

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
