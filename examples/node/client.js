// Lethe from Node: a session is told of a patient, asked, made to forget the patient, and leaves a certificate.
//
//   npm ci                                                  # here, in examples/node
//   lethe-server --model models/lethe-tiny --data data &
//   node examples/node/client.js [HOST:PORT [DIRECTORY]]    # the certificate's files go to DIRECTORY (default: certificate)
//   lethe verify certificate --trust data/trust.txt         # offline
//
// With TLS: LETHE_TLS_CA, and LETHE_TLS_CERT and LETHE_TLS_KEY for a client certificate (files); LETHE_TOKEN_FILE for a bearer token,
// which needs TLS. Ends with 0 when the story came out as told.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const ROOT = path.join(__dirname, '..', '..');
const PROTO = path.join(ROOT, 'proto');
const QUERY = '[Query] Patient Kalo-17 takes';
const [address = '127.0.0.1:7070', directory = 'certificate'] = process.argv.slice(2);

function loadServices() {
  const files = ['session', 'generation', 'forgetting', 'certification'].map((name) => `lethe/v1/${name}.proto`);
  // longs as strings: token_ids have 64 bits, JavaScript's numbers 53.
  const definition = loader.loadSync(files, { includeDirs: [PROTO], keepCase: true, longs: String, enums: String, oneofs: true });
  return grpc.loadPackageDefinition(definition).lethe.v1;
}

function credentials() {
  const read = (variable) => (process.env[variable] ? fs.readFileSync(process.env[variable]) : null);
  const authority = read('LETHE_TLS_CA');
  if (!authority) return grpc.credentials.createInsecure();
  const channel = grpc.credentials.createSsl(authority, read('LETHE_TLS_KEY'), read('LETHE_TLS_CERT'));
  const token = read('LETHE_TOKEN_FILE');
  if (!token) return channel;
  return grpc.credentials.combineChannelCredentials(channel, grpc.credentials.createFromMetadataGenerator((_, done) => {
    const metadata = new grpc.Metadata();
    metadata.set('authorization', `Bearer ${token.toString().trim()}`);
    done(null, metadata);
  }));
}

const unary = (client, method, request) => new Promise((resolve, reject) => {
  client[method](request, (error, answer) => (error ? reject(error) : resolve(answer)));
});

// Streams an answer. remember = false: neither question nor answer enters the session.
async function ask(generations, session_id) {
  const events = generations.Generate(
    { session_id, prompt: { text: Buffer.from(QUERY) }, remember: false, output: { max_tokens: 32, stop: [Buffer.from('.')] } },
    { deadline: Date.now() + 60_000 });
  let answer = '';
  for await (const event of events) answer += event.delta?.text ?? '';
  console.log(`  ${QUERY}${answer}.`);
  return answer.trim();
}

function writeCertificate(certificate) {
  fs.mkdirSync(directory, { mode: 0o700 });
  fs.writeFileSync(path.join(directory, 'envelope.json'), certificate.envelope); // the signed statement
  fs.writeFileSync(path.join(directory, 'proof.tlog'), certificate.log_proof); // its inclusion in the audit log
  fs.writeFileSync(path.join(directory, 'opening.json'), certificate.opening); // opens what the statement hides; keep it to yourself
  console.log(`Certificate in ${directory}; lethe verify ${directory} --trust TRUST checks it offline.`);
}

async function main() {
  const v1 = loadServices();
  const [sessions, generations, forgetting, certification] = [
    v1.SessionService, v1.GenerationService, v1.ForgettingService, v1.CertificationService,
  ].map((Service) => new Service(address, credentials()));
  const { session_id } = (await unary(sessions, 'CreateSession', {})).session;

  console.log('Told of a night on the ward and of two patients:');
  // What one person's request must be able to forget carries that person's label.
  for (const [text, subject] of [
    [fs.readFileSync(path.join(ROOT, 'deploy/texts/1-night.txt')), ''],
    [Buffer.from('[Record] Patient Kalo-17 takes zelvim.\n'), 'patient-17'],
    [Buffer.from('[Record] Patient Mira-52 takes torol.\n'), 'patient-52'],
  ]) {
    await unary(sessions, 'Append', { session_id, input: { text }, subject });
  }
  const before = await ask(generations, session_id);

  // With a request_id the call may be repeated when its answer was lost: it returns the same receipt.
  const receipt = await unary(forgetting, 'Forget', {
    session_id, selection: { subject: 'patient-17' }, derived_policy: 'DERIVED_POLICY_FORGET_DERIVED', request_id: 'forget-patient-17',
  });
  console.log(`Forgot ${receipt.num_forgotten} tokens of patient-17:`);
  const after = await ask(generations, session_id);

  const record = await unary(certification, 'GetCertificate', { session_id, seq: receipt.certificate.seq });
  writeCertificate(record.certificate);
  await unary(sessions, 'DeleteSession', { session_id });
  console.log('Session deleted; its certificate stays valid.');
  if (before === after) throw new Error('the answer did not change');
}

main().catch((error) => {
  console.error(`client.js: ${error.code in grpc.status ? `${grpc.status[error.code]}: ${error.details}` : error.message}`);
  process.exitCode = 1;
});
