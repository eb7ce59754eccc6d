// As test_headers.h, for the tests that know gRPC.
// Threads: none.
#ifndef LETHE_TESTS_TESTING_SERVICE_TEST_HEADERS_H_
#define LETHE_TESTS_TESTING_SERVICE_TEST_HEADERS_H_

#include "cmake/service_headers.h"
#include "tests/testing/test_headers.h"

#endif  // LETHE_TESTS_TESTING_SERVICE_TEST_HEADERS_H_
