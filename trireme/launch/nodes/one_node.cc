// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/free_port.h"
#include "trireme/launch/job_store.h"
#include "trireme/launch/nodes/nodes.h"

namespace trireme::launch {
namespace {

class OneNode final : public Nodes {
 public:
  OneNode(const RunOptions& options, const std::string& job_id, const std::string& secret_file)
      : options_(options),
        workers_{options.nproc_per_node},
        store_(job_id, secret_file, options.nproc_per_node) {}

  int node_rank() const override { return 0; }
  const std::vector<int>& workers_of_nodes() const override { return workers_; }
  std::string store_address() const override { return store_.address(); }
  std::unique_ptr<Store> job_store() override { return store_.own(); }
  Begun begin(int restarts, const std::function<bool()>&) override {
    cause_.reset();
    return {options_.master_addr, free_port(options_.master_port), restarts, restarts};
  }
  int fd() const override { return -1; }
  std::optional<StopCause> stopped() override { return cause_; }
  StopCause stop(const StopCause& ours) override {
    if (!cause_) cause_ = ours;
    return *cause_;
  }
  std::optional<StopCause> finish(const End&, const std::function<bool()>&) override {
    return cause_;
  }

 private:
  const RunOptions& options_;
  const std::vector<int> workers_;
  JobStore store_;
  std::optional<StopCause> cause_;
};

}  // namespace

std::unique_ptr<Nodes> one_node(const RunOptions& options, const std::string& job_id,
                                const std::string& secret_file) {
  return std::make_unique<OneNode>(options, job_id, secret_file);
}

}  // namespace trireme::launch
