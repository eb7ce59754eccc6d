// lethe-soak: a server under load for any time (soak.h). Not installed: it starts the server of its own build.
#include <cstdio>
#include <iostream>
#include <random>

#include <CLI/CLI.hpp>

#include "tests/soak/soak.h"

int main(int argc, char** argv) {
  lethe::soak::SoakOptions options;
  double minutes = 10;
  options.num_sessions = 200;
  options.num_rounds = 15;
  options.resident_mib = 64;
  options.print_rounds = true;
  options.seed = std::random_device()();
  bool any_memory = false;
  CLI::App app{
      "lethe-soak: many clients on one lethe-server of this build, each with a session of its own\n"
      "that it appends to, generates in, forgets in, certifies, exports, cancels and disconnects "
      "from.\n"
      "Exit status: 0 when nothing failed.",
      "lethe-soak"};
  app.add_option("--minutes", minutes, "How long")
      ->check(CLI::Range(0.05, 1e5))
      ->capture_default_str();
  app.add_option("--sessions", options.num_sessions, "Sessions at once, a client each")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--rounds", options.num_rounds, "Times that all fall silent and are measured")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--resident-mib", options.resident_mib, "The server's option of this name")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "What the clients draw from (default: a new one)");
  app.add_flag("--any-memory", any_memory, "Do not judge the growth of resident memory");
  CLI11_PARSE(app, argc, argv);
  options.seconds = 60 * minutes;
  options.check_memory = !any_memory;
  std::cout << "seed " << options.seed << "\n" << std::flush;
  const lethe::soak::SoakReport report = lethe::soak::RunSoak(options);
  std::cout << report.counts << report.num_steps << " steps, " << report.num_complaints
            << " complaints\n";
  for (const std::string& complaint : report.complaints) std::cout << complaint << "\n";
  return report.num_complaints == 0 ? 0 : 1;
}
