// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/file_list.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <tuple>

#include "trireme/base/check.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

class Walk {
 public:
  explicit Walk(const std::vector<std::string>& extensions) {
    for (const auto& e : extensions) extensions_.insert(e.starts_with('.') ? e : "." + e);
  }

  void argument(const std::string& path) {
    check<UsageError>(!path.empty(), "data: an empty path: give files, folders or globs");
    std::error_code error;
    // A name that exists is taken as it stands, whatever characters it has.
    if (fs::exists(path, error)) return entry(path, true);
    check<ResourceError>(!error || error == std::errc::not_a_directory,
                         "cannot look at data path '{}': {}", path, error.message());
    check<UsageError>(path.find_first_of("*?[") != std::string::npos,
                      "data path '{}' does not exist: check the path", path);
    check<UsageError>(
        path.find("**") == std::string::npos,
        "data path '{}': '**' is not understood: give the folder itself, which is read "
        "recursively, and extensions",
        path);
    glob_t matches{};
    const int rc = ::glob(path.c_str(), GLOB_NOSORT, nullptr, &matches);
    std::vector<std::string> names(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    ::globfree(&matches);
    check<ResourceError>(rc != GLOB_NOSPACE && rc != GLOB_ABORTED,
                         "data path '{}': cannot read a folder", path);
    check<UsageError>(!names.empty(), "data path '{}' matches no file", path);
    std::sort(names.begin(), names.end());
    for (const auto& name : names) entry(name, false);
  }

  std::vector<ListedFile> take() {
    auto key = [](const ListedFile& f) { return std::tie(f.name, f.path); };
    std::sort(found_.begin(), found_.end(), [&](auto& a, auto& b) { return key(a) < key(b); });
    return std::move(found_);
  }

 private:
  void entry(const fs::path& path, bool outright) {
    std::error_code error;
    const auto status = fs::status(path, error);
    if (fs::is_directory(status)) return folder(path, path);
    if (fs::is_regular_file(status)) return file(path, path.filename().string(), outright);
    check<UsageError>(!outright, "'{}' is not a regular file: give files, folders or globs",
                      path.string());
  }

  void folder(const fs::path& path, const fs::path& root) {
    std::error_code error;
    if (!folders_.insert(fs::canonical(path, error).string()).second) return;  // a loop, or twice
    std::vector<fs::path> children;
    fs::directory_iterator it(path, error), end;
    for (; !error && it != end; it.increment(error)) children.push_back(it->path());
    check<ResourceError>(!error,
                         "cannot read data folder '{}': {}: make it readable or leave it out",
                         path.string(), error.message());
    std::sort(children.begin(), children.end(),
              [](auto& a, auto& b) { return a.native() < b.native(); });
    for (const auto& child : children) {
      if (child.filename().native().starts_with('.')) continue;
      const auto status = fs::status(child, error);
      if (fs::is_directory(status))
        folder(child, root);
      else if (fs::is_regular_file(status))
        file(child, child.lexically_relative(root).string(), false);
    }
  }

  void file(const fs::path& path, std::string name, bool outright) {
    if (!outright && !extensions_.empty() && !extensions_.contains(path.extension().string()))
      return;
    std::error_code error;
    if (!files_.insert(fs::canonical(path, error).string()).second) return;
    found_.push_back({path.string(), std::move(name), outright});
  }

  std::set<std::string> extensions_, folders_, files_;
  std::vector<ListedFile> found_;
};

}  // namespace

std::vector<ListedFile> list_files(const std::vector<std::string>& paths,
                                   const std::vector<std::string>& extensions) {
  Walk walk(extensions);
  for (const auto& path : paths) walk.argument(path);
  return walk.take();
}

}  // namespace trireme
