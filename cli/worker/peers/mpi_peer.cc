// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <filesystem>
#include <limits>

#include "cli/worker/peers/mpi_call.h"
#include "cli/worker/peers/peer.h"
#include "trireme/base/check.h"

namespace trireme {
namespace {

class MpiPeer final : public BenchPeer {
 public:
  explicit MpiPeer(const Group& world) {
    const auto module =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "trireme-mpi-peer.so";
    check<UsageError>(
        std::filesystem::exists(module),
        "bench: this build has no MPI (on Debian: libopenmpi-dev); leave mpi out of --backend");
    // Global: Open MPI's own plugins look for its symbols.
    void* handle = ::dlopen(module.c_str(), RTLD_NOW | RTLD_GLOBAL);
    check<ResourceError>(handle != nullptr, "cannot load {}: {}", module.string(),
                         handle ? "" : ::dlerror());
    auto start = reinterpret_cast<TriremeMpiStart>(::dlsym(handle, "trireme_mpi_start"));
    run_ = reinterpret_cast<TriremeMpiRun>(::dlsym(handle, "trireme_mpi_run"));
    stop_ = reinterpret_cast<TriremeMpiStop>(::dlsym(handle, "trireme_mpi_stop"));
    check<ResourceError>(start && run_ && stop_, "{} is not of this build", module.string());
    const char* wrong = start(world.rank(), world.size());
    check<UsageError>(wrong == nullptr, "bench: {}", wrong ? wrong : "");
  }
  ~MpiPeer() override { stop_(); }

  std::string lacks(bench::Op op, bench::Red red, const bench::Type& type) const override {
    const std::string name = type.name;
    if (!bench::reduces(op)) return "";
    if (red == bench::Red::avg) return "no avg";
    if (name == "half" || name == "bfloat16") return "no reductions of " + name;
    return "";
  }

  void run(BenchCall& c) override {
    const bool by_part = c.op == bench::Op::all_gather || c.op == bench::Op::gather;
    const int64_t count = c.op == bench::Op::barrier      ? 0
                          : c.op == bench::Op::all_to_all ? c.in_parts[0].numel()
                          : by_part                       ? c.in.numel()
                                                          : c.out.numel();
    check<UsageError>(count <= std::numeric_limits<int>::max(),
                      "bench: MPI counts elements in 32 bits; {} are too many", count);
    const TriremeMpiCall call{static_cast<int>(c.op),
                              static_cast<int>(c.red),
                              static_cast<int>(c.type - bench::kTypes.data()),
                              c.root,
                              c.in.defined() ? c.in.data_ptr() : nullptr,
                              c.out.defined() ? c.out.data_ptr() : nullptr,
                              count};
    const int code = run_(&call);
    check<Aborted>(code == 0, "{} of MPI returned {}", name_of(c.op), code);
  }

 private:
  TriremeMpiRun run_ = nullptr;
  TriremeMpiStop stop_ = nullptr;
};

}  // namespace

std::unique_ptr<BenchPeer> mpi_peer(Group world) { return std::make_unique<MpiPeer>(world); }

}  // namespace trireme
