// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/machine/gpu.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/proc_text.h"

namespace trireme::launch {
namespace {

// "Bus Location: \t 0000:3b:00.0", as the driver writes what it knows of a GPU.
std::map<std::string, std::string, std::less<>> fields_of(const std::string& text) {
  std::map<std::string, std::string, std::less<>> fields;
  for (const auto line : split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon != std::string_view::npos)
      fields.emplace(trim(line.substr(0, colon)), trim(line.substr(colon + 1)));
  }
  return fields;
}

// Nodes by a GPU's number and by its UUID. CUDA counts GPUs of one kind by their place on the bus,
// as the driver numbers their device files.
std::map<std::string, int> nodes_of_gpus(const std::string& root) {
  std::map<std::string, int> nodes;
  std::error_code error;
  for (const auto& folder :
       std::filesystem::directory_iterator(root + "/proc/driver/nvidia/gpus", error)) {
    auto fields = fields_of(read_if_there(folder.path() / "information").value_or(""));
    std::string bus = fields["Bus Location"];
    std::transform(bus.begin(), bus.end(), bus.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto text = read_if_there(root + "/sys/bus/pci/devices/" + bus + "/numa_node");
    const auto node = text ? parse_int(trim(*text)) : std::nullopt;
    if (bus.empty() || !node || *node < 0) continue;  // the kernel writes -1 where it has one node
    nodes[fields["Device Minor"]] = nodes[fields["GPU UUID"]] = static_cast<int>(*node);
  }
  return nodes;
}

}  // namespace

std::vector<Gpu> visible_gpus(const net::Getenv& env, const std::string& root) {
  std::vector<Gpu> gpus;
  if (const auto visible = env("CUDA_VISIBLE_DEVICES")) {
    for (const auto id : split(*visible, ',')) {
      if (trim(id) == "-1") break;  // CUDA reads no further
      if (!trim(id).empty()) gpus.push_back({std::string(trim(id))});
    }
  } else {
    std::error_code error;
    for (std::string next = "0"; std::filesystem::exists(root + "/dev/nvidia" + next, error);
         next = std::to_string(gpus.size()))
      gpus.push_back({next});
  }
  const auto nodes = nodes_of_gpus(root);
  for (Gpu& gpu : gpus)
    if (const auto found = nodes.find(gpu.name); found != nodes.end()) gpu.node = found->second;
  return gpus;
}

}  // namespace trireme::launch
