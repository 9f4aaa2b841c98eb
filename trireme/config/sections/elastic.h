// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// What the ranks that are left do when one is lost.
struct ElasticSection {
  std::string mode = "restart";
  std::string batch = "keep";

  bool in_process() const { return mode == "in_process"; }

  void fields(Fields& f) {
    f.field(
        {.path = "elastic.mode",
         .choices = "restart in_process",
         .help = "when a rank is lost, with --max-restarts; restart: all ranks start again from "
                 "a checkpoint; in_process: the others keep their processes and go on, and a "
                 "new one takes its place"},
        mode);
    f.field({.path = "elastic.batch",
             .choices = "keep scale",
             .when = "elastic.mode=in_process",
             .help = "a step's samples while ranks are missing; keep: as many, dealt to those that "
                     "are there; scale: fewer, and the learning rate is lower in proportion"},
            batch);
  }
};

}  // namespace trireme
