# SPDX-License-Identifier: Apache-2.0
"""The small words that any text of a language is held together by; text without them is no prose of that language.

Short lists written for this purpose, of languages that reinforcement learning is done in or models fall into. A
language that is not here is judged by its letters alone.
"""

from __future__ import annotations

_LATIN = """
the of and to in is it that for on as with was are be this by at from or an not but have had has we you he she they
his her its their our my your so if then there which who what when how all each one two do does did can could will
would should may must let first next no yes more than after before because into out up only also thus hence therefore
since here where were been being me them us some any these those such between over under about just now per both
der die das und ist nicht ein eine einer den dem des zu mit von auf sich wir er sie es auch als wie wird sind aus im
le la les de des et est un une du que qui dans pour pas sur il elle nous vous ce se au aux avec plus par sont ne
el los las en y es por para una con no se del al lo como su sus son
il di che per del della un una non sono con si da gli
o os um uma que em para com por mais dos das na no ao foi
het een van en dat niet met zijn op te voor aan
i w na z do nie jest sie to jak od po za ze przez dla
a az es hogy nem egy is van meg
ve bir bu da de icin ile olarak daha ne var
yang dan di itu dengan untuk ini dari tidak dalam akan pada
va la cua mot khong trong cho duoc nhung
ja on ei se oli mutta etta
och att det som en pa ar av for med till
"""
_CYRILLIC = """
и в не на что он с как это по но из у к а то все за от так для его мы она они вы же бы или если был была
было быть есть при до только уже также этого том этом их нет да чтобы когда
та що не до як це від із про його ми
"""
_GREEK = "και το να του η της τα με που ο για είναι από οι στο ότι δεν την θα τον στη μας"
_ARABIC = "من في على إلى أن هذا هذه التي الذي عن مع ما هو هي لا كان قد كل بعد أو ثم و"
_HEBREW = "של את על לא זה הוא היא עם גם אם כי אני אבל כל או יש אל"
_HINDI = "है के की में का से और को पर यह हैं कि ने नहीं एक भी तो था हो ही इस"

FUNCTION_WORDS = frozenset(
    word
    for word in f"{_LATIN} {_CYRILLIC} {_GREEK} {_ARABIC} {_HEBREW} {_HINDI}".split()
    if len(word) > 1 or not word.isascii()
)
"""Lower case, without the marks over letters in Latin script. One Latin letter is no evidence of language: noise is full of them."""

ENGLISH = frozenset(
    [
        "the",
        "of",
        "and",
        "to",
        "in",
        "is",
        "it",
        "that",
        "for",
        "on",
        "as",
        "with",
        "was",
        "are",
        "be",
        "this",
        "by",
        "at",
        "from",
        "or",
        "an",
        "not",
        "but",
        "have",
        "a",
        "if",
        "so",
        "then",
    ]
)
"""Those that a broken English model strings together."""

HAN_FUNCTION = frozenset(
    "的一是在不了有和人这中大为上个我以要他到说们来用时就出会可也对能下过子多而后那得着自之者其所于与此"
    "與這個們為說來時對會過後種樣從當還已把被又很将因但如果每再先共得则即么什吗呢吧啊故故且若"
    "求设答解由所得到需加减乘除等数于天年月日里内外前各该则只最没无第几多少两三四五六七八九十"
)
"""Characters that Chinese prose is held together by, simplified and traditional, with the small change of sums."""

CONTEXT_FREE = frozenset("的是了和在不有这我他她它们与及或也就都而及以之于为")
"""Chinese function characters that say nothing by themselves."""
