// As library_headers.h, for the folders that know gRPC. Not CLI11: what it leaves to do costs each user 4 s, precompiled or not.
// Threads: none.
#ifndef LETHE_CMAKE_SERVICE_HEADERS_H_
#define LETHE_CMAKE_SERVICE_HEADERS_H_

#include "google/protobuf/util/time_util.h"
#include "grpcpp/grpcpp.h"
#include "nlohmann/json.hpp"

#include "cmake/library_headers.h"
#include "lethe/v1/audit.grpc.pb.h"
#include "lethe/v1/certification.grpc.pb.h"
#include "lethe/v1/forgetting.grpc.pb.h"
#include "lethe/v1/generation.grpc.pb.h"
#include "lethe/v1/memory.grpc.pb.h"
#include "lethe/v1/model.grpc.pb.h"
#include "lethe/v1/session.grpc.pb.h"

#endif  // LETHE_CMAKE_SERVICE_HEADERS_H_
