"""Certificates over time: whatever is late or down, the API server accepts what every replica serves."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

import pytest
from cryptography.x509 import DNSName, load_pem_x509_certificate, load_pem_x509_certificates
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from wigwag.operator.certificates import secret
from wigwag.operator.certificates.authority import CertificatePolicy, facts, is_signed_by, new_authority, sign, split
from wigwag.operator.certificates.rotation import RotationStep, advance, read
from wigwag.operator.certificates.secret import bundle, served, service_names

T = TypeVar("T")
START = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = service_names("webhook", "system")
POLICY = CertificatePolicy(
    authority=timedelta(days=60),
    serving=timedelta(days=9),
    skew=timedelta(hours=1),
    settle=timedelta(minutes=10),
)


class History(Generic[T]):
    """What something was at each moment."""

    def __init__(self) -> None:
        self._times: list[datetime] = []
        self._values: list[T] = []

    def add(self, time: datetime, value: T) -> None:
        self._times.append(time)
        self._values.append(value)

    def at(self, time: datetime) -> T:
        return self._values[max(bisect_right(self._times, time) - 1, 0)]

    @property
    def last(self) -> T:
        return self._values[-1]


def accepts(trusted: str, certificate: str, time: datetime, name: str = NAMES[0]) -> bool:
    """Verify as an independent library does."""
    store = Store(load_pem_x509_certificates(trusted.encode()))
    verifier = PolicyBuilder().store(store).time(time.replace(tzinfo=None)).build_server_verifier(DNSName(name))
    try:
        verifier.verify(load_pem_x509_certificate(certificate.encode()), [])
    except VerificationError:
        return False
    return True


class Cluster:
    """A Secret, a webhook configuration, and a controller that looks at both when a test says so."""

    def __init__(self) -> None:
        self.secrets, self.bundles = History[dict[str, str]](), History[str]()
        self.steps: list[RotationStep] = []
        self.secrets.add(START, {})
        self.bundles.add(START, "")

    def reconcile(self, now: datetime, names: tuple[str, ...] = NAMES, *, publish: bool = True) -> None:
        """Take steps until there is nothing more to do, and publish the bundle."""
        for _ in range(10):
            step, data = advance(self.secrets.last, names, self.bundles.last, now, POLICY)
            if publish:
                self.bundles.add(now, bundle(data))
            if step is RotationStep.KEEP:
                return
            self.steps.append(step)
            self.secrets.add(now, data)
        raise AssertionError(f"it never ends: {self.steps}")


def after(cluster: Cluster, time: timedelta) -> list[RotationStep]:
    """Return the steps that a reconcile at a time takes."""
    before = len(cluster.steps)
    cluster.reconcile(START + time)
    return cluster.steps[before:]


pauses = st.lists(st.timedeltas(timedelta(seconds=1), timedelta(days=2)), min_size=60, max_size=120)
lags = st.timedeltas(timedelta(0), POLICY.settle)
skews = st.timedeltas(-POLICY.skew, POLICY.skew)


@settings(deadline=None, max_examples=25, phases=[Phase.explicit, Phase.generate])  # to shrink one takes minutes
@given(pauses=pauses, data=st.data())
def test_at_every_moment_the_api_server_accepts_what_every_replica_serves(
    pauses: list[timedelta], data: st.DataObject
) -> None:
    cluster = Cluster()
    cluster.reconcile(START)
    begun = now = START + POLICY.settle
    for pause in pauses:
        behind, late, skew = data.draw(lags), data.draw(lags), data.draw(skews)
        for moment in (now, now + POLICY.settle / 2, now + pause):
            trusted = cluster.bundles.at(max(moment - behind, begun - POLICY.settle))
            replica = served(cluster.secrets.at(max(moment - late, begun - POLICY.settle)))
            assert replica is not None
            assert accepts(trusted, replica.certificate, moment + skew), cluster.steps
        now += pause
        cluster.reconcile(now, NAMES if data.draw(st.booleans()) else (*NAMES, "webhook.example.com"))


def test_a_ca_is_replaced_step_by_step_and_the_old_one_stays_as_long_as_something_is_signed_by_it() -> None:
    cluster = Cluster()
    assert after(cluster, timedelta(0)) == [RotationStep.START]
    first = bundle(cluster.secrets.last)
    days = 0
    while RotationStep.SEEN not in cluster.steps:
        days += 1
        assert set(after(cluster, timedelta(days=days))) <= {
            RotationStep.RENEW,
            RotationStep.INTRODUCE,
            RotationStep.SEEN,
        }
    assert days == 40, "a third of the validity is left"
    both = split(bundle(cluster.secrets.last))
    assert both[0] == first
    old = served(cluster.secrets.last)
    assert old
    assert is_signed_by(old.certificate, first)
    almost = timedelta(days=days) + POLICY.settle - timedelta(seconds=1)
    assert after(cluster, almost) == []
    assert after(cluster, timedelta(days=days) + POLICY.settle) == [RotationStep.ACTIVATE]
    new = served(cluster.secrets.last)
    assert new
    assert is_signed_by(new.certificate, both[1])
    assert set(split(bundle(cluster.secrets.last))) == set(both)
    while RotationStep.RETIRE not in cluster.steps:
        days += 1
        after(cluster, timedelta(days=days))
    assert facts(old.certificate).ends < START + timedelta(days=days)
    assert split(bundle(cluster.secrets.last)) == (both[1],)


def rotating() -> tuple[Cluster, timedelta]:
    """Return a cluster with a new CA that is seen, and when that was."""
    cluster, time = Cluster(), timedelta(0)
    while RotationStep.SEEN not in cluster.steps:
        cluster.reconcile(START + time)
        time += timedelta(days=1)
    return cluster, time - timedelta(days=1)


def test_a_bundle_that_cannot_be_published_keeps_the_old_ca_signing_until_it_ends() -> None:
    cluster = Cluster()
    cluster.reconcile(START)
    only = bundle(cluster.secrets.last)
    for days in range(1, 60):
        cluster.reconcile(START + timedelta(days=days), publish=False)
        replica = served(cluster.secrets.last)
        assert replica
        assert accepts(only, replica.certificate, START + timedelta(days=days))
    assert RotationStep.ACTIVATE not in cluster.steps
    assert cluster.steps.count(RotationStep.RENEW) < 12, (
        "a certificate that cannot end later is not renewed again and again"
    )
    cluster.reconcile(START + timedelta(days=61), publish=False)
    assert RotationStep.START not in cluster.steps[1:], "its successor has been in the Secret for weeks"
    assert RotationStep.ACTIVATE in cluster.steps


def test_an_old_bundle_that_is_written_back_begins_the_wait_anew() -> None:
    cluster, time = rotating()
    cluster.bundles.add(START + time, split(cluster.bundles.last)[0])
    first = advance(cluster.secrets.last, NAMES, cluster.bundles.last, START + time + POLICY.settle, POLICY)
    assert first[0] is RotationStep.UNSEEN
    assert after(cluster, time + POLICY.settle) == [RotationStep.UNSEEN, RotationStep.SEEN]
    assert after(cluster, time + POLICY.settle * 1.5) == []
    assert after(cluster, time + POLICY.settle * 2) == [RotationStep.ACTIVATE]


def test_other_names_get_a_new_certificate_of_the_same_ca() -> None:
    cluster = Cluster()
    cluster.reconcile(START)
    trusted = bundle(cluster.secrets.last)
    cluster.reconcile(START, ("127.0.0.1", "other.system.svc"))
    assert cluster.steps == [RotationStep.START, RotationStep.RENEW]
    assert bundle(cluster.secrets.last) == trusted
    replica = served(cluster.secrets.last)
    assert replica
    assert facts(replica.certificate).names == {"127.0.0.1", "other.system.svc"}
    assert accepts(trusted, replica.certificate, START, "other.system.svc")


def test_a_secret_of_cert_manager_is_used_as_it_is() -> None:
    authority = new_authority(START, POLICY)
    pair = sign(authority, NAMES, START, POLICY)
    data = {"ca.crt": authority.certificate, "tls.crt": pair.certificate, "tls.key": pair.key}
    late = START + timedelta(days=1000)
    assert advance(data, ("others",), "", late, POLICY) == (RotationStep.FOREIGN, data)
    assert served(data) == pair
    assert bundle(data) == authority.certificate


@pytest.mark.parametrize("key", ["ca.crt", "ca.key"])
@pytest.mark.parametrize("value", ["", "nonsense", new_authority(START, POLICY).certificate])
def test_a_secret_without_a_usable_ca_starts_over_and_keeps_the_keys_of_others(key: str, value: str) -> None:
    _, data = advance({"note": "mine"}, NAMES, "", START, POLICY)
    step, repaired = advance({**data, key: value}, NAMES, "", START, POLICY)
    assert step is RotationStep.START
    assert repaired["note"] == "mine"
    assert advance(repaired, NAMES, "", START, POLICY)[0] is RotationStep.KEEP


@pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("value", ["", "nonsense", sign(new_authority(START, POLICY), NAMES, START, POLICY).key])
def test_a_certificate_that_cannot_be_used_is_made_anew(key: str, value: str) -> None:
    _, data = advance({}, NAMES, "", START, POLICY)
    step, repaired = advance({**data, key: value}, NAMES, "", START, POLICY)
    assert step is RotationStep.RENEW
    assert bundle(repaired) == bundle(data)
    assert advance(repaired, NAMES, "", START, POLICY)[0] is RotationStep.KEEP


@pytest.mark.parametrize("key", [secret.NEXT_KEY, secret.NEXT_PUBLISHED])
@pytest.mark.parametrize("value", ["", "nonsense"])
def test_a_broken_rotation_begins_again(key: str, value: str) -> None:
    cluster, time = rotating()
    cluster.secrets.add(START + time, {**cluster.secrets.last, key: value})
    cluster.reconcile(START + time)
    cluster.reconcile(START + time + POLICY.settle)
    assert cluster.steps[-1] is RotationStep.ACTIVATE
    replica = served(cluster.secrets.last)
    assert replica
    assert accepts(cluster.bundles.last, replica.certificate, START + time + POLICY.settle)


def test_no_key_is_shown_by_accident() -> None:
    _, data = advance({}, NAMES, "", START, POLICY)
    held = read(data)
    assert "PRIVATE" not in repr(held)


def test_a_replica_that_only_serves_needs_no_cryptography() -> None:
    import subprocess
    import sys

    code = "import sys, wigwag.operator.certificates.secret, wigwag.operator.admission.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "cryptography" not in loaded.split()


def test_without_the_extra_the_error_says_what_to_install() -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from wigwag.errors import UsageError\n"
        "try: import wigwag.operator.certificates.rotation\n"
        "except UsageError as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'wigwag[operator]'" in told
