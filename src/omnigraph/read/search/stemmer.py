"""The English Snowball stemmer ("Porter 2") of Snowball 3, which the text indexes use.

It is implemented here because its rules change between releases, and a package of another release
than the index would match other rows. Words are in lower case and without apostrophes: the
tokeniser splits at them.
"""

from __future__ import annotations

from collections.abc import Iterable

_VOWELS = frozenset("aeiouy")
_NO_SHORT_END = _VOWELS | frozenset("wxY")
_LI_ENDINGS = frozenset("cdeghkmnrt")
_DOUBLES = frozenset({"bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"})
_R1_TEXT = "arsen commun emerg gener inter later organ past univers"
_R1_PREFIXES = tuple(_R1_TEXT.split())

_WHOLE_WORDS = {
    "skis": "ski",
    "skies": "sky",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_KEPT_BEFORE_EED = frozenset({"succ", "proc", "exc"})
_KEPT_BEFORE_ING = frozenset({"even", "cann", "inn", "earr", "herr", "out"})

# Suffixes by the step that handles them, with their replacements; the longest first.
_STEP_2_TEXT = """
ational:ate fulness:ful iveness:ive ization:ize ousness:ous biliti:ble lessli:less tional:tion
ogist:og alism:al aliti:al ation:ate entli:ent fulli:ful iviti:ive ousli:ous abli:able alli:al
anci:ance ator:ate enci:ence izer:ize bli:ble ogi:og li:
"""
_STEP_3_TEXT = "ational:ate tional:tion alize:al ative: icate:ic iciti:ic ical:ic ness: ful:"
_STEP_4_TEXT = "ement able ance ence ible ment ant ate ent ion ism iti ive ize ous al er ic"
_STEP_2 = dict(pair.split(":") for pair in _STEP_2_TEXT.split())
_STEP_3 = dict(pair.split(":") for pair in _STEP_3_TEXT.split())
_STEP_4 = tuple(_STEP_4_TEXT.split())


def stem(word: str) -> str:
    """The stem of a word in lower case.

    >>> [stem(word) for word in ("running", "generously", "skies", "introduction", "sky")]
    ['run', 'generous', 'sky', 'introduct', 'sky']
    """
    if len(word) < 3:
        return word
    whole = _WHOLE_WORDS.get(word)
    if whole is not None:
        return whole
    word = _mark_consonant_y(word)
    first, second = _regions(word)
    word = _plural(word)
    word = _past_and_gerund(word, first)
    word = _final_y(word)
    word = _derived(word, first)
    word = _shorter_derived(word, first, second)
    word = _residual(word, second)
    return _final_letters(word, first, second).replace("Y", "y")


def _mark_consonant_y(word: str) -> str:
    """``Y`` where a y is a consonant: at the start and after a vowel."""
    if "y" not in word:
        return word
    letters = list(word)
    if letters[0] == "y":
        letters[0] = "Y"
    for at in range(1, len(letters)):
        if letters[at] == "y" and letters[at - 1] in _VOWELS:
            letters[at] = "Y"
    return "".join(letters)


def _regions(word: str) -> tuple[int, int]:
    """The start indices of the regions R1 and R2."""
    first = next((len(p) for p in _R1_PREFIXES if word.startswith(p)), -1)
    if first < 0:
        first = _after_vowel_and_consonant(word, 0)
    return first, _after_vowel_and_consonant(word, first)


def _after_vowel_and_consonant(word: str, start: int) -> int:
    for at in range(start + 1, len(word)):
        if word[at] not in _VOWELS and word[at - 1] in _VOWELS:
            return at + 1
    return len(word)


def _has_vowel(part: str) -> bool:
    return not _VOWELS.isdisjoint(part)


def _ends_short(word: str) -> bool:
    """Whether a word ends in a short syllable."""
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    return word.endswith("past") or (
        len(word) > 2
        and word[-1] not in _NO_SHORT_END
        and word[-2] in _VOWELS
        and word[-3] not in _VOWELS
    )


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _has_vowel(word[:-2]):
        return word[:-1]
    return word


def _past_and_gerund(word: str, first: int) -> str:
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            kept = len(base) < first or base in _KEPT_BEFORE_EED
            return word if kept else base + "ee"
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            if suffix == "ing" and base in _KEPT_BEFORE_ING:
                return word
            if suffix == "ing" and len(base) == 2 and base[1] == "y" and base[0] not in _VOWELS:
                return base[0] + "ie"
            return _repaired(base, first) if _has_vowel(base) else word
    return word


def _repaired(base: str, first: int) -> str:
    """Repair a word after the removal of ``ed`` or ``ing``: hopp(ed) to hop, hop(ed) to hope."""
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if base[-2:] in _DOUBLES:
        # add, egg, odd
        return base if len(base) == 3 and base[0] in "aeo" else base[:-1]
    if len(base) == first and _ends_short(base):
        return base + "e"
    return base


def _final_y(word: str) -> str:
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        return word[:-1] + "i"
    return word


def _longest(suffixes: Iterable[str], word: str) -> str:
    """The first of the suffixes that the word ends with."""
    return next((suffix for suffix in suffixes if word.endswith(suffix)), "")


def _derived(word: str, first: int) -> str:
    suffix = _longest(_STEP_2, word)
    at = len(word) - len(suffix)
    before = word[at - 1 : at]
    is_kept = (suffix == "ogi" and before != "l") or (suffix == "li" and before not in _LI_ENDINGS)
    return word if not suffix or at < first or is_kept else word[:at] + _STEP_2[suffix]


def _shorter_derived(word: str, first: int, second: int) -> str:
    suffix = _longest(_STEP_3, word)
    at = len(word) - len(suffix)
    is_kept = not suffix or at < (second if suffix == "ative" else first)
    return word if is_kept else word[:at] + _STEP_3[suffix]


def _residual(word: str, second: int) -> str:
    suffix = _longest(_STEP_4, word)
    at = len(word) - len(suffix)
    is_kept = at < second or (suffix == "ion" and word[at - 1 : at] not in ("s", "t"))
    return word if is_kept else word[:at]


def _final_letters(word: str, first: int, second: int) -> str:
    at = len(word) - 1
    if word.endswith("e") and (at >= second or (at >= first and not _ends_short(word[:at]))):
        return word[:at]
    if word.endswith("ll") and at >= second:
        return word[:at]
    return word
