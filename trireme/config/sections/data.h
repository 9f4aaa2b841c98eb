// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// Where samples come from.
struct DataSection {
  std::string type = "auto";
  std::vector<std::string> paths = {"/usr/include/c++", "/usr/include/torch"};
  std::vector<std::string> extensions = {".h", ".hh", ".hpp", ".tcc", ""};
  double validation_fraction = 0.05;
  std::optional<int64_t> end_of_document;
  std::optional<std::string> path;
  int64_t train_samples = 60000;
  int64_t validation_samples = 10000;
  std::optional<int64_t> workers;

  void fields(Fields& f) {
    const char* text = "data.type=corpus,documents";
    f.field({.path = "data.type",
             .choices = "auto corpus documents mnist digits dummy",
             .help = "auto: corpus for gpt; else mnist when data.path is given, else digits "
                     "rendered on the fly"},
            type);
    f.field({.path = "data.paths",
             .when = text,
             .help = "files, folders (searched recursively) and globs of the corpus"},
            paths);
    f.field(
        {.path = "data.extensions",
         .when = text,
         .help = "extensions of files taken from folders; \"\": files without one; []: every file"},
        extensions);
    f.field({.path = "data.validation_fraction",
             .min = 0,
             .max = 0.5,
             .when = text,
             .help = "fraction of the corpus held out for the validation loss"},
            validation_fraction);
    f.field({.path = "data.end_of_document",
             .min = 0,
             .max = 255,
             .when = "data.type=corpus",
             .help = "byte that ends a document, and each file: rows of the corpus hold several, "
                     "positions begin anew in each, attention does not see others, and nothing is "
                     "predicted across; default: rows are one document each"},
            end_of_document);
    f.field({.path = "data.path",
             .when = "data.type=mnist",
             .help = "folder with the four MNIST IDX files"},
            path);
    f.field(
        {.path = "data.train_samples",
         .min = 0,
         .max = f.kMany,
         .when = "data.type=digits,dummy",
         .help =
             "samples per epoch; 0, allowed for dummy only and its default: no sample is repeated"},
        train_samples);
    f.field({.path = "data.validation_samples",
             .min = 0,
             .max = f.kMany,
             .when = "data.type=digits",
             .help = "held-out samples; 0: nothing is held out"},
            validation_samples);
    f.field({.path = "data.workers",
             .min = 0,
             .max = 256,
             .help = "threads that prepare batches ahead, in the same order whatever their number; "
                     "0: the training thread does it; default: 1 if the rank has a core to spare"},
            workers);
  }
};

}  // namespace trireme
