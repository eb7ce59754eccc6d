// A memory of vital signs that forgets a patient exactly: a vector session in C++, through client/client.h.
//
//   lethe-server --no-model &
//   lethe-example-vectors [HOST:PORT]      # ends with 0 when all that it says held
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"

#include "kernels/base/status_macros.h"

namespace {

using ::lethe::client::Client;
namespace v1 = ::lethe::v1;

constexpr int kKeyDim = 3;    // heart rate, blood pressure, temperature, each scaled to about 1
constexpr int kValueDim = 1;  // what we want back for a query: hours to discharge
constexpr int kRows = 40;     // of each patient

struct Patient {
  const char* name;
  double offset;  // of all signs from the healthy mean
  unsigned seed;  // of the signs that are made up here
};
constexpr Patient kPatients[] = {{"patient-3", 0, 1}, {"patient-17", 2, 2}, {"patient-52", 0.5, 3}};

void SetMatrix(const std::vector<double>& numbers, int num_columns, v1::Matrix* matrix) {
  matrix->set_num_rows(static_cast<int>(numbers.size()) / num_columns);
  matrix->set_num_columns(num_columns);
  matrix->mutable_values()->Add(numbers.begin(), numbers.end());
}

// The width, the share of outliers and the rest are fixed here, before the first vital sign: nothing that
// outlives a Forget may be computed from what is forgotten.
absl::StatusOr<std::string> CreateSession(Client& client) {
  v1::CreateVectorSessionRequest request;
  v1::VectorOptions* options = request.mutable_options();
  options->set_key_dim(kKeyDim);
  options->set_value_dim(kValueDim);
  options->set_sigma(2.0);                        // how far a key's influence reaches
  options->mutable_nu()->set_nu(0.1);             // about a tenth may count as unusual ...
  options->mutable_nu()->set_reference_size(80);  // ... of a history of this length
  LETHE_ASSIGN_OR_RETURN(const auto response, client.CreateVectorSession(request));
  return response.session().session_id();
}

// Appends a patient's signs under a label to forget them by.
absl::Status Append(Client& client, const std::string& session_id, const Patient& patient) {
  std::mt19937_64 random(patient.seed);
  std::normal_distribution<double> noise;
  std::vector<double> keys;
  std::vector<double> values;
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kKeyDim; ++i) keys.push_back(patient.offset + noise(random));
    values.push_back(48.0 * patient.offset);
  }
  v1::AppendVectorsRequest request;
  request.set_session_id(session_id);
  request.set_subject(patient.name);
  SetMatrix(keys, kKeyDim, request.mutable_keys());
  SetMatrix(values, kValueDim, request.mutable_values());
  return client.AppendVectors(request).status();
}

// The decision is the anomaly score: below 0 the query is unlike what the memory holds.
absl::StatusOr<v1::ReadResponse> Read(Client& client, const std::string& session_id) {
  v1::ReadRequest request;
  request.set_session_id(session_id);
  SetMatrix({0, 0, 0, 2, 2, 2, 9, 9, 9}, kKeyDim, request.mutable_queries());
  LETHE_ASSIGN_OR_RETURN(v1::ReadResponse response, client.Read(request));
  const char* const names[] = {"usual", "as patient 17", "far off"};
  for (int i = 0; i < 3; ++i) {
    std::cout << "  " << names[i] << ": score " << response.decisions(i) << ", "
              << response.readouts().values(i) << " hours\n";
  }
  return response;
}

absl::Status Run(const std::string& address) {
  LETHE_ASSIGN_OR_RETURN(const auto client, Client::Connect({.address = address}));
  LETHE_ASSIGN_OR_RETURN(const std::string told, CreateSession(*client));
  for (const Patient& patient : kPatients) LETHE_RETURN_IF_ERROR(Append(*client, told, patient));
  std::cout << "A memory of three patients:\n";
  LETHE_RETURN_IF_ERROR(Read(*client, told).status());
  v1::ForgetRequest forget;
  forget.set_session_id(told);
  forget.mutable_selection()->set_subject(kPatients[1].name);
  forget.set_derived_policy(v1::DERIVED_POLICY_FAIL);
  LETHE_ASSIGN_OR_RETURN(const v1::ForgetResponse receipt, client->Forget(forget));
  std::cout << "Forgot " << receipt.num_forgotten() << " vectors of patient-17:\n";
  LETHE_ASSIGN_OR_RETURN(const v1::ReadResponse after, Read(*client, told));
  LETHE_ASSIGN_OR_RETURN(const std::string never, CreateSession(*client));
  LETHE_RETURN_IF_ERROR(Append(*client, never, kPatients[0]));
  LETHE_RETURN_IF_ERROR(Append(*client, never, kPatients[2]));
  std::cout << "A memory that never saw patient-17:\n";
  LETHE_ASSIGN_OR_RETURN(const v1::ReadResponse want, Read(*client, never));
  if (after.SerializeAsString() != want.SerializeAsString()) {
    return absl::DataLossError("the two memories answer differently");
  }
  std::cout << "Both answer alike, bit for bit.\n";
  v1::CertifyRequest certify;
  certify.set_session_id(told);
  LETHE_ASSIGN_OR_RETURN(const v1::CertifyResponse record, client->Certify(certify));
  std::cout << "Certified as record " << record.certificate().ref().seq() << ".\n";
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc > 1 ? argv[1] : "127.0.0.1:7070");
  if (!status.ok()) std::cerr << "lethe-example-vectors: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
