// sigstore_verify.mjs DIR: certificates checked as Sigstore bundles by @sigstore/verify, offline.
// DIR/cases/*/{envelope.json,proof.tlog}, DIR/trust.txt; prints "<case> ok" or "<case> bad". The entry of the log is made of the
// envelope and the trusted key, as a Sigstore client gets it from a bundle; everything else is in the certificate.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { bundleFromJSON } from '@sigstore/bundle';
import { Verifier, toSignedEntity, toTrustMaterial } from '@sigstore/verify';

const dir = process.argv[2];
const trust = Object.fromEntries(
  readFileSync(`${dir}/trust.txt`, 'utf8').trim().split('\n').map((line) => line.split(' ')));
const spki = Buffer.from(trust.record, 'hex');
const recordKeyId = createHash('sha256').update(spki).digest('hex');
const [origin, hint, key] = trust.log.split(/\+([0-9a-f]{8})\+/);
const logSpki = Buffer.concat([
  Buffer.from('302a300506032b6570032100', 'hex'), Buffer.from(key, 'base64').subarray(1)]);
const logId = Buffer.from(hint, 'hex');

const material = toTrustMaterial(
  {
    certificateAuthorities: [], timestampAuthorities: [], ctlogs: [],
    tlogs: [{
      baseUrl: `https://${origin}`,
      publicKey: { rawBytes: logSpki, keyDetails: 7 /* PKIX_ED25519 */ },
      logId: { keyId: logId },
      checkpointKeyId: { keyId: logId },
    }],
  },
  { [recordKeyId]: { rawBytes: spki } });
// Clocks have no part in it: no timestamps, no certificates of a certificate transparency log.
const verifier = new Verifier(material, { tlogThreshold: 1, timestampThreshold: 0, ctlogThreshold: 0 });

function bundleOf(path) {
  const envelope = JSON.parse(readFileSync(`${path}/envelope.json`, 'utf8'));
  const proofFile = readFileSync(`${path}/proof.tlog`, 'utf8');
  const split = proofFile.indexOf('\n\n');
  const [, index, ...hashes] = proofFile.slice(0, split).split('\n');
  const checkpoint = proofFile.slice(split + 2);
  const [, size, root] = checkpoint.split('\n');
  const payload = Buffer.from(envelope.payload, 'base64');
  const pae = Buffer.concat([
    Buffer.from(`DSSEv1 ${envelope.payloadType.length} ${envelope.payloadType} ${payload.length} `), payload]);
  const leaf = {
    apiVersion: '0.0.2', kind: 'hashedrekord',
    spec: { hashedRekordV002: {
      data: { algorithm: 'SHA2_256', digest: createHash('sha256').update(pae).digest('base64') },
      signature: {
        content: envelope.signatures[0].sig,
        verifier: { keyDetails: 'PKIX_ED25519', publicKey: { rawBytes: spki.toString('base64') } },
      } } },
  };
  const leafIndex = index.slice('index '.length);
  return bundleFromJSON({
    mediaType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
    verificationMaterial: {
      publicKey: { hint: envelope.signatures[0].keyid },
      tlogEntries: [{
        logIndex: leafIndex,
        logId: { keyId: logId.toString('base64') },
        kindVersion: { kind: 'hashedrekord', version: '0.0.2' },
        integratedTime: '0',
        inclusionProof: { logIndex: leafIndex, rootHash: root, treeSize: size, hashes, checkpoint: { envelope: checkpoint } },
        canonicalizedBody: Buffer.from(JSON.stringify(leaf)).toString('base64'),
      }],
    },
    dsseEnvelope: envelope,
  });
}

for (const name of readdirSync(`${dir}/cases`).sort()) {
  let verdict = 'ok';
  try {
    verifier.verify(toSignedEntity(bundleOf(`${dir}/cases/${name}`)));
  } catch (error) {
    // What is no verdict of the verifier must not pass for one.
    if (!['VerificationError', 'ValidationError'].includes(error.constructor.name)) throw error;
    verdict = 'bad';
  }
  console.log(`${name} ${verdict}`);
}
