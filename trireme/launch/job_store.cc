// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/job_store.h"

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/net/secret.h"
#include "trireme/store/server/tcp_server.h"

namespace trireme::launch {

void write_secret(const std::string& path, std::string_view secret) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  check<ResourceError>(static_cast<bool>(fd), "cannot make {}: {}", path, errno_text());
  if (::write(fd.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
    fail<ResourceError>("cannot write {}: {}", path, errno_text());
}

struct JobStore::Server {
  StoreServer store;
};

JobStore::JobStore(const std::string& job_id, const std::string& secret_file, int ranks) {
  std::string secret = net::generate_secret();
  write_secret(secret_file, secret);
  StoreServer::Options options;
  options.credentials = {job_id, net::Secret(secret)};
  options.max_pending = StoreServer::most_strangers(ranks);
  server_.reset(new Server{StoreServer(options)});
}

JobStore::~JobStore() = default;

std::unique_ptr<Store> JobStore::own() { return server_->store.local_store(); }

std::string JobStore::address() const { return server_->store.endpoints().at(0).address.text(); }

}  // namespace trireme::launch
