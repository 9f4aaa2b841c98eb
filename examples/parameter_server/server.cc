// SPDX-License-Identifier: Apache-2.0
// A server of parameters and of an embedding's rows. It knows no model: trainer.cc brings it.
//   trireme run --role server=2 --role trainer=2 sh -c 'exec ./$TRIREME_ROLE 2 2 FOLDER'
// With a folder it goes on from its newest checkpoint; a third number bounds how far trainers may
// be apart, without which every step is made by all of them together.
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) try {
  const std::string folder = argc > 3 ? argv[3] : "";
  const char* number = std::getenv("TRIREME_ROLE_RANK");  // among servers
  trireme::rpc::ServerOptions options;
  options.workers = argc > 2 ? std::atoi(argv[2]) : 1;
  options.optimizer = [](trireme::NamedTensors parameters) {
    return trireme::make_adamw(std::move(parameters), {}, {{"*", std::nullopt, 0.05}});
  };
  options.row_optimizer = [](trireme::RowTable table) {
    return trireme::make_row_adagrad(std::move(table));
  };
  if (!folder.empty()) options.folder = folder + "/server" + (number ? number : "0");
  if (argc > 4) options.staleness = std::atoi(argv[4]);

  trireme::rpc::ParameterServer server(options);
  auto me = trireme::rpc::init({.offers = {server.offer()}});  // "server0", as its launcher says
  server.wait();                                               // until every trainer has left
  std::printf("%s made %ld steps\n", me.name().c_str(), static_cast<long>(server.steps()));
  me.shutdown();
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
