"""Verifies a DSSE envelope with Python's securesystemslib: ENVELOPE PUBLIC_KEY_PEM KEYID."""

import json
import sys

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

envelope_path, key_path, keyid = sys.argv[1:]
with open(envelope_path, "rb") as file:
    envelope = Envelope.from_dict(json.load(file))
with open(key_path, "rb") as file:
    key = SSlibKey.from_crypto(load_pem_public_key(file.read()), keyid=keyid)

accepted = envelope.verify([key], 1)
assert list(accepted) == [keyid], accepted
statement = json.loads(envelope.payload)
assert statement["_type"] == "https://in-toto.io/Statement/v1", statement["_type"]
print("verified", keyid, statement["predicate"]["result"])
