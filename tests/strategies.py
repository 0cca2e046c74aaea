"""Hypothesis strategies: JSON values, contexts, rules and documents, mostly valid and sometimes strange."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from wigwag.flags.rules.operators.table import OPERATORS

ATTRIBUTES = ("email", "tier", "age", "version", "tags", "user", "targetingKey", "beta", "absent")
VARIANTS = {"on": True, "off": False, "red": "#f00", "many": 10, "some": 0.5, "conf": {"a": 1}, "true": 1, "1": "one"}

texts = st.one_of(
    st.sampled_from(["", "a", "gold", "fay@example.com", "1.2.3", "v2", "10", "1e3", " 7", "0x1p4", "inf", "é", "😀"]),
    st.text(max_size=6),
)
numbers = st.one_of(
    st.integers(-5, 20), st.sampled_from([0, 1, 2**53, 2**53 + 1, -(2**63), 2**64]), st.sampled_from([0.5, -1.5, 1e21])
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["a", "b", "name", "qty"]), inner, max_size=3)
    ),
    max_leaves=6,
)
contexts = st.dictionaries(st.sampled_from(ATTRIBUTES), values, max_size=6)
names = st.sampled_from([*ATTRIBUTES, "user.name", "tags.0", "tags.1", "$flagd.flagKey", "$flagd.timestamp", "", "."])


def variables() -> st.SearchStrategy[Any]:
    plain = names.map(lambda name: {"var": name})
    with_default = st.tuples(names, scalars).map(lambda pair: {"var": list(pair)})
    return st.one_of(plain, plain, with_default)


def _operation(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    operands = st.one_of(st.lists(inner, min_size=1, max_size=4), st.lists(inner, max_size=2), inner)
    anything = st.tuples(st.sampled_from(sorted(OPERATORS)), operands).map(lambda pair: {pair[0]: pair[1]})
    return st.one_of(anything, _fractional(inner), _branch(inner), _comparison(inner), _array(inner))


def _fractional(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    share = st.one_of(
        st.tuples(st.sampled_from(list(VARIANTS)), st.integers(0, 50)).map(list),
        st.tuples(inner).map(list),
        st.tuples(inner, inner).map(list),
    )
    shares = st.lists(share, min_size=1, max_size=4)
    by = st.one_of(st.just([]), st.tuples(inner).map(list))
    return st.tuples(by, shares).map(lambda parts: {"fractional": parts[0] + parts[1]})


def _branch(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    answer = st.one_of(st.sampled_from([*VARIANTS, None]), inner)
    return st.tuples(inner, answer, answer).map(lambda parts: {"if": list(parts)})


def _comparison(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    relation = st.sampled_from(["==", "!=", "===", "!==", "<", "<=", ">", ">=", "starts_with", "ends_with", "in"])
    constant = st.one_of(scalars, st.lists(scalars, max_size=3))
    versions = st.tuples(variables(), st.sampled_from(["=", ">=", "^", "~", "?"]), texts).map(
        lambda v: {"sem_ver": list(v)}
    )
    either = st.one_of(st.tuples(variables(), constant), st.tuples(constant, variables()), st.tuples(inner, inner))
    return st.one_of(versions, st.tuples(relation, either).map(lambda pair: {pair[0]: list(pair[1])}))


def _array(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    operator = st.sampled_from(["map", "filter", "all", "some", "none"])
    subject = st.one_of(st.just({"var": "tags"}), st.lists(scalars, max_size=3))
    return st.tuples(operator, subject, inner).map(lambda parts: {parts[0]: [parts[1], parts[2]]})


rules = st.recursive(st.one_of(scalars, variables()), _operation, max_leaves=12)


def flag(rule: Any, default: str | None = "off") -> dict[str, Any]:
    return {"state": "ENABLED", "variants": VARIANTS, "defaultVariant": default, "targeting": rule}
