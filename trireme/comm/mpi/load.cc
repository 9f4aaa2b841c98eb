// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/mpi/load.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/comm/local/reduce_kernels.h"

namespace trireme::detail {
namespace {

namespace fs = std::filesystem;

/// Returns the library or program that contains this function.
fs::path own_file() {
  struct Search {
    uintptr_t address;
    std::string found;
  } search{reinterpret_cast<uintptr_t>(&own_file), ""};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
          if (header.p_type != PT_LOAD || s.address < begin || s.address >= begin + header.p_memsz)
            continue;
          s.found = info->dlpi_name;
          return 1;
        }
        return 0;
      },
      &search);
  std::error_code error;
  // The program itself has no name in that list.
  return fs::canonical(search.found.empty() ? "/proc/self/exe" : search.found, error);
}

void reduce_two(uint8_t dtype, uint8_t op, const void* in, void* inout, size_t count) {
  const void* sources[] = {in, inout};
  local::reduce(static_cast<local::DType>(dtype), static_cast<ReduceOp>(op), sources, 2, &inout, 1,
                count);
}

const char* env(const char* name) { return std::getenv(name); }

}  // namespace

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> names;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

std::string mpi_module_path(MpiFlavour flavour) {
  const fs::path here = own_file().parent_path();
  const std::string name = fmt::format("libtrireme_mpi_{}.so", name_of(flavour));
  // Next to the library; or relative to our programs, in bin/ and libexec/trireme/ of an
  // installation, or anywhere in a build tree.
  for (const char* way : {".", "..", "../..", "../" TRIREME_LIBDIR, "../../" TRIREME_LIBDIR}) {
    std::error_code error;
    const fs::path file = here / way / name;
    if (fs::is_regular_file(file, error)) return fs::canonical(file, error).string();
  }
  return "";
}

const TriremeMpiModule& load_mpi(std::optional<MpiFlavour> given) {
  auto choice = mpi_choice(env, loaded_libraries());
  if (given) choice = std::vector<MpiFlavour>{*given};
  check<UsageError>(choice.has_value(), "TRIREME_MPI={}: it must be openmpi or mpich",
                    env("TRIREME_MPI") ? env("TRIREME_MPI") : "");
  std::string file;
  for (MpiFlavour f : *choice)
    if (file.empty()) file = mpi_module_path(f);
  const MpiFlavour wanted = choice->front();
  check<UsageError>(
      !file.empty(),
      "the backend 'mpi': this process runs under {}, and libtrireme_mpi_{}.so is not beside {}: "
      "build Trireme where that MPI is installed (Debian: {}), or start the ranks with another "
      "MPI's mpirun",
      name_of(wanted), name_of(wanted), own_file().string(), debian_package_of(wanted));
  // Global: Open MPI's own plugins look for its symbols.
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  const char* wrong = library ? nullptr : ::dlerror();
  check<ResourceError>(library != nullptr, "cannot load {}: {}", file, wrong ? wrong : "");
  const auto entry = reinterpret_cast<TriremeMpiEntry>(::dlsym(library, "trireme_mpi_module"));
  const TriremeMpiModule* module = entry ? entry(kTriremeMpiAbi) : nullptr;
  check<ResourceError>(module && module->abi == kTriremeMpiAbi,
                       "{} does not speak version {} of Trireme's interface to MPI: it belongs to "
                       "another build; install the one that came with this library",
                       file, kTriremeMpiAbi);

  check<UsageError>(module->initialized() || started_for_mpi(env),
                    "the backend 'mpi' is for ranks that mpirun or srun started, and nothing says "
                    "that they started this process, so MPI_Init would make it a world of its own: "
                    "mpirun -n N PROGRAM, or choose local or gloo");
  static const TriremeMpiHost host{kTriremeMpiAbi, reduce_two};
  char why[512] = "";
  check<UsageError>(module->start(&host, why, sizeof why), "the backend 'mpi' ({}): {}",
                    module->library, why);
  return *module;
}

}  // namespace trireme::detail
