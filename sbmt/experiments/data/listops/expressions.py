"""The language of ListOps: nested operations on single digits, how they are written as tokens, and their values.

An expression is a digit, or an operator followed by expressions and a closing token, such as
``[MAX 2 9 [MIN 4 7 ] 0 ]``, whose value is 9. Its symbols are token ids:

| id | token |
|---|---|
| 0 | padding |
| 1, 2, 3, 4 | ``[MIN``, ``[MAX``, ``[MED``, ``[SM`` |
| 5 | ``X``, which closes an operator |
| 6 … 15 | the digits 0 … 9 |
| 16 | unknown: never used, so that the embedding is as large as the original one |

Source: Nangia and Bowman, "ListOps: a diagnostic dataset for latent tree learning" (2018), in the version of Long Range
Arena, Tay et al. (2020). There the order of the ids differs from run to run; here it is fixed.
"""

from collections.abc import Callable, Iterable

import numpy as np

from sbmt.errors import SbmtError

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
DIGITS = tuple("0123456789")
TOKENS = (*OPERATORS, "X", *DIGITS)
"""Token of id 1, 2, …"""
CLOSE = 5
FIRST_DIGIT = 6
VOCAB_SIZE = 17
_ID = {token: i for i, token in enumerate(TOKENS, start=1)}
_IDS = bytes(_ID.values())
_DO = "correct that expression, or leave it out"


def encode_expression(text: str) -> bytes:
    """The symbols of a written expression, one byte per token, without parentheses, which only repeat its structure.

    Tokens are separated by blanks; the one that closes an operator is written ``]`` or ``X``.

    Raises:
        SbmtError: If there is no token, or an unknown one. The structure is not checked.

    Example:
        >>> list(encode_expression("[MAX 2 9 X"))
        [2, 8, 15, 5]
        >>> list(encode_expression("( ( ( [MAX 2 ) 9 ) ] )"))
        [2, 8, 15, 5]
    """
    tokens = text.replace("(", "").replace(")", "").replace("]", "X").split()
    try:
        symbols = bytes([_ID[token] for token in tokens])
    except KeyError as error:
        raise SbmtError(f"tokens among {' '.join(TOKENS)}", repr(error.args[0]), _DO) from None
    if not symbols:
        raise SbmtError("an expression of at least one token", repr(text), _DO)
    return symbols


def decode_expression(symbols: Iterable[int]) -> str:
    """An expression as it is written, without parentheses.

    Raises:
        SbmtError: If an id has no token, as that of padding.

    Example:
        >>> decode_expression(bytes([2, 8, 15, 5]))
        '[MAX 2 9 ]'
    """
    ids = bytes(symbols)
    _check_ids(ids)
    return " ".join("]" if i == CLOSE else TOKENS[i - 1] for i in ids)


def evaluate_expression(symbols: bytes) -> int:
    """The value of an expression, a digit.

    MIN and MAX are the smallest and the largest value. MED is the median; of an even number of values it is the mean
    of the middle two, rounded down. SM is the last digit of the sum. Expressions may be nested to any depth.

    Raises:
        SbmtError: If the symbols are not one whole expression: if an operator has no values or is not closed, a
            closing token closes nothing, or there are several expressions.

    Example:
        >>> texts = (f"[{name} 2 9 [MIN 4 7 ] 1 ]" for name in ("MAX", "MED", "SM"))
        >>> [evaluate_expression(encode_expression(text)) for text in texts]
        [9, 3, 6]
    """
    _check_ids(symbols)
    operators: list[int] = []
    values: list[list[int]] = [[]]  # those outside of all operators, then those of each open operator so far
    for symbol in symbols:
        if symbol >= FIRST_DIGIT:
            values[-1].append(symbol - FIRST_DIGIT)
        elif symbol < CLOSE:
            operators.append(symbol)
            values.append([])
        elif operators and values[-1]:
            value = _OPERATIONS[operators.pop()](values.pop())
            values[-1].append(value)
        else:
            raise _malformed(symbols, "an operator without values" if operators else "an X that closes nothing")
    if operators:
        raise _malformed(symbols, "an operator left open")
    if len(values[0]) != 1:
        raise _malformed(symbols, f"{len(values[0])} expressions in a row")
    return values[0][0]


def expression_depth(symbols: bytes) -> int:
    """The number of levels of the tree: 1 for a digit, 2 for an operator on digits, and so on.

    Example:
        >>> texts = "7", "[SM 1 2 ]", "[SM 1 [SM 2 3 ] ]"
        >>> [expression_depth(encode_expression(text)) for text in texts]
        [1, 2, 3]
    """
    ids = np.frombuffer(symbols, dtype=np.uint8)
    n_open = (ids < CLOSE).cumsum() - (ids == CLOSE).cumsum()
    return 1 + int(n_open.max(initial=0))


def count_operators(symbols: bytes) -> int:
    """The number of operators in an expression.

    Example:
        >>> count_operators(encode_expression("[SM 1 [SM 2 3 ] ]"))
        2
    """
    return symbols.count(CLOSE)


def _median(values: list[int]) -> int:
    ranked, n = sorted(values), len(values)
    return (ranked[(n - 1) // 2] + ranked[n // 2]) // 2


_OPERATIONS: dict[int, Callable[[list[int]], int]] = {1: min, 2: max, 3: _median, 4: lambda values: sum(values) % 10}


def _check_ids(symbols: bytes) -> None:
    wrong = symbols.translate(None, _IDS)
    if wrong:
        raise SbmtError(f"token ids in [1, {len(TOKENS)}]", wrong[0], "remove padding and unknown tokens")


def _malformed(symbols: bytes, got: str) -> SbmtError:
    return SbmtError("one whole expression", f"{got} in {len(symbols)} tokens", _DO)
