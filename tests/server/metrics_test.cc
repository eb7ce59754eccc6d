// Goal: a page of metrics is Prometheus' text format, histograms add up, and the port serves three paths and nothing else.
// Method: pages compared with their text; requests over a real socket.
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/limits/limits.h"
#include "server/metrics/metrics_server.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/server_metrics.h"
#include "tests/testing/http_get.h"

namespace lethe {
namespace {

using ::lethe::testing::HttpExchange;
using ::lethe::testing::HttpGet;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(MetricsPageTest, IsTheTextFormat) {
  MetricsPage page;
  page.Family("a_total", "counter", "Counted.");
  page.Sample({{"x", "1"}, {"y", "a\"b\\c\nd"}}, 3);
  page.Sample({}, 0.25);
  page.Gauge("b", "Held.", 1e15);
  EXPECT_EQ(page.text(),
            "# HELP a_total Counted.\n# TYPE a_total counter\n"
            "a_total{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 3\na_total 0.25\n"
            "# HELP b Held.\n# TYPE b gauge\nb 1000000000000000\n");
}

TEST(LatencyHistogramTest, BucketsAreSumsAndABoundBelongsToItsBucket) {
  LatencyHistogram histogram;
  for (const int64_t us : {0, 1'000, 1'001, 64'000'000, 64'000'001}) histogram.Add(us);
  MetricsPage page;
  page.Family("h", "histogram", "H.");
  histogram.WriteTo({{"m", "x"}}, &page);
  EXPECT_THAT(page.text(), HasSubstr("h_bucket{m=\"x\",le=\"0.001\"} 2\n"
                                     "h_bucket{m=\"x\",le=\"0.004\"} 3\n"));
  EXPECT_THAT(page.text(), HasSubstr("h_bucket{m=\"x\",le=\"64\"} 4\n"
                                     "h_bucket{m=\"x\",le=\"+Inf\"} 5\n"
                                     "h_sum{m=\"x\"} 128.002002\nh_count{m=\"x\"} 5\n"));
}

TEST(ServerMetricsTest, CallsAreCountedByMethodAndCodeAndRefusalsByLimit) {
  ServerMetrics metrics;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) {
        metrics.CountCall("Forget", absl::OkStatus(), 10);
        metrics.CountCall("Generate", LimitError({"QUEUE_FULL", "--queue", 2, 3}, "full"), 10);
        metrics.CountCall("Generate", absl::NotFoundError("no such session"), 10);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  metrics.num_generated_tokens += 7;
  MetricsPage page;
  metrics.WriteTo(&page);
  EXPECT_THAT(page.text(),
              HasSubstr("lethe_rpc_duration_seconds_count{method=\"Forget\",code=\"OK\"} 400\n"));
  EXPECT_THAT(page.text(), HasSubstr("_count{method=\"Generate\",code=\"NOT_FOUND\"} 400\n"));
  EXPECT_THAT(page.text(), HasSubstr("lethe_limit_refusals_total{limit=\"queue\"} 400\n"));
  EXPECT_THAT(page.text(), HasSubstr("lethe_generated_tokens_total 7\n"));
}

TEST(ProcessMetricsTest, HaveTheUsualNames) {
  MetricsPage page;
  WriteProcessMetrics(&page);
  for (const char* name : {"process_resident_memory_bytes", "process_cpu_seconds_total",
                           "process_open_fds", "process_start_time_seconds", "process_max_fds"}) {
    EXPECT_THAT(page.text(), HasSubstr(std::string("\n") + name + " ")) << name;
  }
}

class MetricsServerTest : public ::testing::Test {
 protected:
  const std::unique_ptr<MetricsServer> server_ = *MetricsServer::Start("127.0.0.1:0");
};

TEST_F(MetricsServerTest, ReadinessFollowsTheServer) {
  const std::string& address = server_->address();
  EXPECT_THAT(HttpGet(address, "/readyz"), StartsWith("HTTP/1.0 503 "));
  EXPECT_THAT(HttpGet(address, "/livez"), StartsWith("HTTP/1.0 200 "));
  EXPECT_THAT(HttpGet(address, "/metrics"), EndsWith("\nlethe_ready 0\n"));
  server_->SetPage([] { return std::string("x 1\n"); });
  server_->SetReady(true);
  EXPECT_THAT(HttpGet(address, "/readyz"), StartsWith("HTTP/1.0 200 "));
  const std::string page = HttpGet(address, "/metrics");
  EXPECT_THAT(page, EndsWith("\nlethe_ready 1\nx 1\n"));
  EXPECT_THAT(page, HasSubstr("Content-Type: text/plain; version=0.0.4\r\n"));
  server_->SetReady(false);
  EXPECT_THAT(HttpGet(address, "/readyz"), StartsWith("HTTP/1.0 503 "));
}

TEST_F(MetricsServerTest, OtherRequestsAreRefusedAndLeaveItServing) {
  const std::string& address = server_->address();
  EXPECT_THAT(HttpGet(address, "/"), StartsWith("HTTP/1.0 404 "));
  EXPECT_THAT(HttpGet(address, "/metrics/../x"), StartsWith("HTTP/1.0 404 "));
  EXPECT_THAT(HttpExchange(address, "POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.0 405 "));
  EXPECT_THAT(HttpExchange(address, "DELETE /metrics HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.0 400 "));
  EXPECT_THAT(HttpExchange(address, "GET\r\n\r\n"), StartsWith("HTTP/1.0 400 "));
  EXPECT_THAT(HttpExchange(address, "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
              StartsWith("HTTP/1.0 400 "));
  // Whoever is cut off while sending may miss the answer.
  EXPECT_THAT(HttpExchange(address, "GET /" + std::string(60'000, 'x') + " HTTP/1.1\r\n\r\n"),
              ::testing::AnyOf(StartsWith("HTTP/1.0 413 "), ""));
  EXPECT_THAT(HttpGet(address, "/livez"), StartsWith("HTTP/1.0 200 "));
}

TEST_F(MetricsServerTest, AddressesAreCheckedAndASecondServerIsRefused) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "[::1]:9464",
                              "no-such-host:1", "127.0.0.1:-1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckMetricsAddress(address))) << address;
  }
  EXPECT_TRUE(CheckMetricsAddress("0.0.0.0:9464").ok());
  EXPECT_TRUE(CheckMetricsAddress("localhost:0").ok());
  const absl::Status second = MetricsServer::Start(server_->address()).status();
  EXPECT_TRUE(absl::IsUnavailable(second));
  EXPECT_THAT(std::string(second.message()), StartsWith("--metrics: cannot listen on "));
}

}  // namespace
}  // namespace lethe
