"""A position in the change feed of a branch, as readers keep it.

A cursor consists of the last commit that was read completely, and the offset in the next one. It
also has a mark of the view under which those were read, if not all rows are visible: the changes
after it only fit a copy with the same rows.
"""

from __future__ import annotations

import base64
import binascii
import json

from omnigraph.errors import InputError
from omnigraph.plan.view import View
from omnigraph.records import dataclass

_VERSION = 1
_VERSION_WITH_VIEW = 2
_MARK = 32


def view_mark(view: View | None) -> str:
    """The mark of a view in a cursor: empty if everything is visible."""
    return "" if view is None or view.is_whole else view.digest[:_MARK]


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the feed of a branch."""

    branch: str | None
    commit: str | None
    """The last commit that was read completely; ``None`` before the first."""
    offset: int = 0
    """The number of events and changes of the next commit that were read."""
    filter: str = ""
    """The filter to which the offset applies, with the ids of its types."""
    view: str | None = ""
    """The mark of the view of the last commit, and of the next one if there is an offset; ``None``
    if nothing has been read yet."""

    def text(self) -> str:
        """The encoded form."""
        fields = [_VERSION, self.branch, self.commit, self.offset, self.filter]
        if self.view:
            fields = [_VERSION_WITH_VIEW, *fields[1:], self.view]
        packed = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        return base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")

    @staticmethod
    def parse(text: str) -> Cursor:
        try:
            padded = text + "=" * (-len(text) % 4)
            fields = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
            version, branch, commit, offset, filter_text, *marks = fields
        except (ValueError, TypeError, RecursionError, binascii.Error):
            raise _invalid_cursor() from None
        mark = marks[0] if len(marks) == 1 else ""
        is_valid = (
            (version, len(marks)) in ((_VERSION, 0), (_VERSION_WITH_VIEW, 1))
            and isinstance(branch, str | None)
            and isinstance(commit, str | None)
            and isinstance(offset, int)
            and offset >= 0
            and isinstance(filter_text, str)
            and isinstance(mark, str)
        )
        if not is_valid or not all(map(_is_unicode, (branch, commit, filter_text, mark))):
            raise _invalid_cursor()
        return Cursor(branch, commit, offset, filter_text, mark)


def _is_unicode(text: str | None) -> bool:
    """Whether a text can be written; JSON can escape halves of characters."""
    return text is None or not any("\ud800" <= character <= "\udfff" for character in text)


def _invalid_cursor() -> InputError:
    return InputError(
        "invalid cursor of a change feed", hint="pass the cursor of a page, or a start"
    )
