"""Verifies a DSSE envelope with Python's securesystemslib: ENVELOPE PUBLIC_KEY_PEM [KEYID].

Without KEYID the envelope's own is taken: it is a hint only, the signature must verify with the key.
"""

import json
import sys

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

envelope_path, key_path, *given = sys.argv[1:]
with open(envelope_path, "rb") as file:
    content = json.load(file)
# Before the library takes the dictionary apart.
keyid = given[0] if given else content["signatures"][0]["keyid"]
envelope = Envelope.from_dict(content)
with open(key_path, "rb") as file:
    key = SSlibKey.from_crypto(load_pem_public_key(file.read()), keyid=keyid)

accepted = envelope.verify([key], 1)
assert list(accepted) == [keyid], accepted
statement = json.loads(envelope.payload)
assert statement["_type"] == "https://in-toto.io/Statement/v1", statement["_type"]
print(f"signature ok; result {statement['predicate']['result']}; key {keyid}")
