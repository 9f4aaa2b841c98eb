// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <filesystem>

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
    auto start = reinterpret_cast<const char* (*)(int, int)>(::dlsym(handle, "trireme_mpi_start"));
    all_reduce_ =
        reinterpret_cast<int (*)(void*, long, int)>(::dlsym(handle, "trireme_mpi_all_reduce"));
    stop_ = reinterpret_cast<void (*)()>(::dlsym(handle, "trireme_mpi_stop"));
    check<ResourceError>(start && all_reduce_ && stop_, "{} is not of this build", module.string());
    const char* wrong = start(world.rank(), world.size());
    check<UsageError>(wrong == nullptr, "bench: {}", wrong ? wrong : "");
  }
  ~MpiPeer() override { stop_(); }

  void all_reduce(at::Tensor& tensor) override {
    const int code =
        all_reduce_(tensor.data_ptr(), tensor.numel(), tensor.scalar_type() == at::kDouble);
    check<Aborted>(code == 0, "MPI_Allreduce returned {}", code);
  }
  bool supports(at::ScalarType t) const override { return t == at::kFloat || t == at::kDouble; }

 private:
  int (*all_reduce_)(void*, long, int) = nullptr;
  void (*stop_)() = nullptr;
};

}  // namespace

std::unique_ptr<BenchPeer> mpi_peer(Group world) { return std::make_unique<MpiPeer>(world); }

}  // namespace trireme
