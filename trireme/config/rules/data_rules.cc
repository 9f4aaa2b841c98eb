// SPDX-License-Identifier: Apache-2.0
// Rules on which data suits which model.
#include <fmt/core.h>

#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/data.h"
#include "trireme/config/sections/model.h"

namespace trireme {

void data_rules(const Config& c, Findings& f) {
  const auto data = c.section<DataSection>();
  const auto model = c.section<ModelSection>();
  auto at = [&](const char* path) {
    return fmt::format("{} ({})", *c.value_text(path), c.origin(path));
  };

  if (f.fine({"data.type", "model.type"})) {
    const bool text_model = model.type == "gpt";
    if (data.type != "dummy" && text_model != (data.type == "corpus" || data.type == "documents"))
      f.complain("data.type",
                 fmt::format("{} does not suit model.type {}, which takes {}",
                             json_quote(data.type), at("model.type"),
                             text_model ? "corpus, documents or dummy" : "mnist, digits or dummy"));
    else if (data.type == "mnist" && !c.has("data.path"))
      f.complain("data.type", "\"mnist\" needs data.path, the folder with the IDX files");
    else if (data.type != "dummy" && model.type == "mlp" && f.fine({"model.inputs"}) &&
             model.inputs != 784)
      f.complain("model.inputs", fmt::format("must be 784 for data.type {}, whose images are 28×28",
                                             at("data.type")));
    else if (data.type != "dummy" && model.type == "mlp" && f.fine({"model.outputs"}) &&
             model.outputs < 10)
      f.complain("model.outputs",
                 fmt::format("must be at least 10 for data.type {}, the digits", at("data.type")));
  }
  if (f.fine({"data.train_samples", "data.type"}) && data.train_samples == 0 &&
      data.type != "dummy")
    f.complain("data.train_samples", fmt::format("is 0, which only data.type dummy allows: with {} "
                                                 "there must be at least as many as a step has",
                                                 at("data.type")));
  if (f.fine({"data.paths"}) && data.paths.empty())
    f.complain("data.paths", "is empty: name files, folders or globs of the corpus");

  if (f.fine({"model.width", "model.heads"}) && model.width % model.heads != 0) {
    if (c.is_default("model.width"))
      f.complain("model.heads",
                 fmt::format("{} does not divide model.width {}", model.heads, at("model.width")));
    else
      f.complain("model.width", fmt::format("{} is not divisible by model.heads {}", model.width,
                                            at("model.heads")));
  }
}

}  // namespace trireme
