// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <algorithm>
#include <map>

#include "cli/doctor/child.h"
#include "cli/doctor/sections.h"
#include "cli/worker_program.h"
#include "trireme/base/version.h"

namespace trireme::doctor {
namespace {

// What brings a backend that this build lacks.
const std::pair<const char*, const char*> kBackends[] = {
    {"local", ""},
    {"gloo", "libgloo-dev with Debian's LibTorch, or -DTRIREME_GLOO_INCLUDE=DIR"},
    {"mpi", "libopenmpi-dev or libmpich-dev"},
    {"nccl", "a LibTorch with CUDA"},
    {"hybrid", ""},
    {"fake", ""},
};

void say_backends(Section& s, const ordered_json& about) {
  std::vector<std::string> present, absent;
  ordered_json missing = ordered_json::object();
  for (const auto& name : about.value("backends", ordered_json::array()))
    present.push_back(name.get<std::string>());
  for (const auto& [name, brought_by] : kBackends)
    if (std::find(present.begin(), present.end(), name) == present.end()) {
      missing[name] = brought_by;
      absent.push_back(fmt::format("{} (needs {})", name, brought_by));
    }
  s.row("backends", fmt::format("{}", fmt::join(present, ", ")));
  if (!absent.empty()) s.row("not built", fmt::format("{}", fmt::join(absent, "; ")));
  s.json["backends"] = present;
  s.json["backends_not_built"] = missing;
}

}  // namespace

Section versions() {
  Section s("versions");
  utsname system{};
  ::uname(&system);
  const std::string kernel =
      fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  const std::string worker = find_worker_program();
  s.json = {{"trireme", version()},
            {"compiler", TRIREME_COMPILER},
            {"glibc", ::gnu_get_libc_version()},
            {"kernel", kernel},
            {"worker", worker}};
  s.row("trireme", fmt::format("{} ({})", version(), TRIREME_COMPILER));
  s.row("system", fmt::format("{}, glibc {}", kernel, ::gnu_get_libc_version()));
  if (worker.empty()) {
    s.row("worker", "not there");
    s.find(
        "the half of Trireme that links LibTorch is not beside this one: train, generate and "
        "bench need it",
        "build with LibTorch (scripts/build), or install both halves");
    return s;
  }
  // Loading LibTorch takes half a second, from a cold disk several.
  const Answer answer = ask({worker, "about"}, std::chrono::seconds(60));
  const ordered_json about = ordered_json::parse(answer.text, nullptr, false);
  if (!answer.failed.empty() || about.is_discarded() || !about.is_object()) {
    s.row("worker", worker + " does not start");
    s.find(
        fmt::format("{} does not start ({})", worker,
                    answer.failed.empty() ? "no sensible answer" : answer.failed),
        fmt::format("run '{} about' and read what it says (ldd shows missing libraries)", worker));
    return s;
  }
  const auto text = [&](const char* key) { return about.value(key, std::string()); };
  s.json["libtorch"] = about.value("libtorch", ordered_json());
  s.json["cuda"] = about.value("cuda", false);
  s.json["blas_library"] = text("blas_library");
  s.row("LibTorch",
        fmt::format("{}{}, vector kernels {}", text("libtorch"),
                    about.value("cuda", false) ? " with CUDA" : "", text("cpu_capability")));
  s.row("its BLAS", text("blas_library").empty()
                        ? "inside LibTorch"
                        : text("blas_library") + (text("blas_corename").empty()
                                                      ? " (no OpenBLAS)"
                                                      : ", " + text("blas_corename") + " kernels"));
  say_backends(s, about);
  if (text("trireme") != version())
    s.find(
        fmt::format("the worker is of version {}, this command of {}", text("trireme"), version()),
        "build or install both halves together");
  if (!text("blas_library").empty() && text("blas_corename").empty())
    s.find(fmt::format("LibTorch computes with {}: reference BLAS is 10 to 50 times slower",
                       text("blas_library")),
           "apt-get install libopenblas0-pthread");
  return s;
}

}  // namespace trireme::doctor
