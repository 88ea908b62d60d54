"""Every code of the query language, with its meaning.

``P`` codes come from parsing, ``T`` codes from checking against a schema (T1 to T24 are those of
the reference), ``D2`` from planning, ``Q`` and ``L`` codes from files and lint. A code never
changes its meaning.
"""

from __future__ import annotations

SYNTAX: dict[str, str] = {
    "P001": "a character that belongs to no token",
    "P002": "a string that is not closed",
    "P003": "a block comment that is not closed",
    "P004": "an unknown escape sequence in a string",
    "P005": "a number out of range",
    "P006": "nesting too deep",
    "P007": "a brace that is not closed",
    "P008": "too many conditions in one expression",
    "P010": "something else was expected here",
    "P012": "chained comparisons",
    "P013": "an unknown function",
    "P014": "a wrong number of arguments",
    "P015": "`nearest` without a property as its first argument",
    "P016": "`rrf` over something that is not a ranking",
    "P020": "a parameter declared twice",
    "P021": "a vector dimension of zero",
    "P022": "an unknown parameter type",
    "P023": "an unknown query annotation",
    "P024": "a repeated query annotation",
    "P025": "an empty match or negation block",
    "P026": "an empty return block",
    "P027": "a direction after `nearest`",
    "P028": "`offset` without `limit`",
    "P029": "an edge called `not`",
    "P030": "a traversal that ends in a property",
    "P031": "reads and writes in one query",
    "P032": "a clause or projection that starts with a negative number",
    "P033": "`order` after `limit`",
    "P034": "a variable without `$`",
    "P035": "an edge with an upper-case first letter",
    "P036": "an operator of another language",
}

TYPES: dict[str, str] = {
    "T1": "a binding to something that is not a node type",
    "T2": "an unknown property in a binding",
    "T3": "a literal that does not fit the property",
    "T4": "an unknown edge",
    "T5": "an endpoint of the wrong type",
    "T6": "an unknown variable or property in `$v.p`",
    "T7": "operands that cannot be compared or assigned",
    "T8": "a wrong argument of an aggregate",
    "T9": "an aggregate or negation where it makes no sense",
    "T10": "an unknown type in a mutation",
    "T11": "an unknown or unusable property in a mutation",
    "T12": "an insert without a required property",
    "T13": "a property assigned twice",
    "T14": "a mutation variable that is not a parameter",
    "T15": "wrong hop bounds, or a wrong use of `nearest`",
    "T16": "an update of an edge's endpoints",
    "T17": "`nearest` ordering without `limit`",
    "T18": "`nearest` ordering combined with a column ordering",
    "T19": "wrong arguments of `search` or `fuzzy`",
    "T20": "wrong arguments of `match_text` or `bm25`",
    "T21": "wrong arguments or use of `rrf`",
    "T22": "an undirected traversal of an edge with different endpoint types",
    "T23": "a wrong edge binding",
    "T24": "a Blob used as a value",
    "T25": "a variable that is neither bound nor a parameter",
    "T26": "a variable bound to two types",
    "T27": "a wrong list literal",
    "T28": "a reserved parameter name",
    "T29": "an ordering that is not supported",
    "T30": "a condition that is not a truth value",
    "T31": "an ordering by something that is not returned",
    "T32": "a projection that needs a name",
    "T33": "an update of a key property",
    "T34": "a malformed date",
    "T35": "a bare word that means nothing here",
    "T36": "something that a row rule of a policy cannot use",
    "T37": "an attribute of the actor without one type",
}

PLAN: dict[str, str] = {"D2": "a mutation that mixes inserts or updates with deletes"}

FILE: dict[str, str] = {
    "Q000": "a file that does not parse",
    "Q001": "two queries of one name in a file",
}

LINT: dict[str, str] = {
    "L101": "a mutation without parameters",
    "L102": "a mutation that mixes inserts or updates with deletes",
    "L201": "a nullable property that no update query sets",
    "L202": "two result columns of one name",
    "L203": "a parameter that is never used",
    "L204": "a comparison that never holds",
    "L205": "patterns that share no variable, so that their product is formed",
}

CODES: dict[str, str] = {**SYNTAX, **TYPES, **PLAN, **FILE, **LINT}
