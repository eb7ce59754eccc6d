// node_noble.mjs DIR: the Ed25519 signatures of certificates checked by Node's crypto and by @noble/curves (strict RFC 8032: zip215 off), which
// must agree, and the rest with Node's hashes. DIR/cases/*/{envelope.json,proof.tlog}, DIR/trust.txt; prints "<case> ok" or
// "<case> bad", or "<case> disagreement" where the two do not agree.
import { createHash, createPublicKey, verify } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { ed25519 } from '@noble/curves/ed25519.js';

const dir = process.argv[2];
const prefix = Buffer.from('302a300506032b6570032100', 'hex');
const trust = Object.fromEntries(
  readFileSync(`${dir}/trust.txt`, 'utf8').trim().split('\n').map((line) => line.split(' ')));
const spki = Buffer.from(trust.record, 'hex');
const [origin, hint, key] = trust.log.split(/\+([0-9a-f]{8})\+/);
const logKey = Buffer.from(key, 'base64').subarray(1);
const sha256 = (...parts) => createHash('sha256').update(Buffer.concat(parts)).digest();

// True, false, or an exception where the two disagree.
class Disagreement extends Error {}
function verified(raw, message, signature) {
  const node = verify(null, message, createPublicKey({ key: Buffer.concat([prefix, raw]), format: 'der', type: 'spki' }), signature);
  const noble = signature.length === 64 && ed25519.verify(signature, message, raw, { zip215: false });
  if (node !== noble) throw new Disagreement();
  return node;
}

function included(index, size, leafHash, hashes, root) {
  if (index >= size) return false;
  let [fn, sn, r] = [index, size - 1n, leafHash];
  for (const p of hashes) {
    if (sn === 0n) return false;
    if (fn % 2n === 1n || fn === sn) {
      r = sha256(Buffer.from([1]), p, r);
      while (fn % 2n === 0n && fn !== 0n) [fn, sn] = [fn / 2n, sn / 2n];
    } else {
      r = sha256(Buffer.from([1]), r, p);
    }
    [fn, sn] = [fn / 2n, sn / 2n];
  }
  return sn === 0n && r.equals(root);
}

function check(path) {
  const envelope = JSON.parse(readFileSync(`${path}/envelope.json`, 'utf8'));
  const proofFile = readFileSync(`${path}/proof.tlog`, 'utf8');
  const split = proofFile.indexOf('\n\n');
  const [magic, index, ...hashes] = proofFile.slice(0, split).split('\n');
  const note = proofFile.slice(split + 2);
  const text = note.slice(0, note.indexOf('\n\n') + 1);
  const [noteOrigin, size, root] = text.split('\n');
  const [, name, raw] = note.slice(text.length + 1).split('\n')[0].split(' ');
  const payload = Buffer.from(envelope.payload, 'base64');
  const pae = Buffer.concat([
    Buffer.from(`DSSEv1 ${envelope.payloadType.length} ${envelope.payloadType} ${payload.length} `), payload]);
  const signature = Buffer.from(envelope.signatures[0].sig, 'base64');
  const headSignature = Buffer.from(raw, 'base64');
  const leaf = `{"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":{"data":{"algorithm":"SHA2_256","digest":"${
    sha256(pae).toString('base64')}"},"signature":{"content":"${signature.toString('base64')}","verifier":{"keyDetails":"PKIX_ED25519","publicKey":{"rawBytes":"${
    spki.toString('base64')}"}}}}}}`;
  return magic === 'c2sp.org/tlog-proof@v1' && noteOrigin === origin && name === origin &&
    envelope.signatures[0].keyid === sha256(spki).toString('hex') &&
    headSignature.subarray(0, 4).toString('hex') === hint &&
    verified(spki.subarray(12), pae, signature) && verified(logKey, Buffer.from(text), headSignature.subarray(4)) &&
    included(BigInt(index.slice('index '.length)), BigInt(size), sha256(Buffer.from([0]), Buffer.from(leaf)),
      hashes.map((h) => Buffer.from(h, 'base64')), Buffer.from(root, 'base64'));
}

for (const name of readdirSync(`${dir}/cases`).sort()) {
  let verdict;
  try {
    verdict = check(`${dir}/cases/${name}`) ? 'ok' : 'bad';
  } catch (error) {
    if (!(error instanceof Disagreement)) throw error;
    verdict = 'disagreement';
  }
  console.log(`${name} ${verdict}`);
}
