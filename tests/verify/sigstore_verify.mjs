// Verifies a Sigstore bundle with @sigstore/verify: FOLDER_WITH_NODE_MODULES BUNDLE PUBLIC_KEY_PEM.
import { readFileSync } from "node:fs";
import { createPublicKey } from "node:crypto";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [folder, bundlePath, keyPath] = process.argv.slice(2);
const require = createRequire(resolve(folder, "package.json"));
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity } = require("@sigstore/verify");

const bundle = bundleFromJSON(JSON.parse(readFileSync(bundlePath, "utf8")));
const publicKey = createPublicKey(readFileSync(keyPath));
let asked;
const trust = {
  certificateAuthorities: [],
  timestampAuthorities: [],
  tlogs: [],
  ctlogs: [],
  publicKey: (hint) => {
    asked = hint;
    return { publicKey, validFor: () => true };
  },
};
const verifier = new Verifier(trust, { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 });
const signer = verifier.verify(toSignedEntity(bundle));
const statement = JSON.parse(bundle.content.dsseEnvelope.payload.toString("utf8"));
if (statement._type !== "https://in-toto.io/Statement/v1") throw new Error("not a statement");
if (!signer.key) throw new Error("no key in the verdict");
console.log(`signature ok; result ${statement.predicate.result}; key ${asked}`);
