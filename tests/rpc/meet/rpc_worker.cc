// SPDX-License-Identifier: Apache-2.0
// A program of several roles, which tests start with `trireme run --role …`: trainers call each
// server. With an argument, the trainer of that number fails in the first attempt.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "trireme/rpc/rpc.h"

namespace {
namespace rpc = trireme::rpc;

TRIREME_REMOTE(squared, [](int x) { return x * x; });

int variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? std::atoi(value) : -1;
}

}  // namespace

int main(int argc, char** argv) try {
  const bool serves = std::string(std::getenv("TRIREME_ROLE")) == "server";
  auto me = rpc::init(
      {.offers = serves ? std::vector{rpc::offer<squared>()} : std::vector<rpc::Offer>()});
  if (!serves) {
    const int own = variable("TRIREME_ROLE_RANK");
    std::printf("%s got %d from server0\n", me.name().c_str(),
                me.peer("server0").sync<squared>(own + 2));
    std::fflush(stdout);
    if (argc > 1 && std::atoi(argv[1]) == own && variable("TRIREME_ATTEMPT") == 0) return 3;
  }
  me.shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "rpc_worker: %s\n", error.what());
  return 1;
}
