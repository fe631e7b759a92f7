// The nodes of exchange aggregator-tree (INCEPTIONN, figures 1a and 2): workers are the leaves,
// aggregators in any number of levels add up what comes from below, and the root owns the model.
// Every aggregator is a parameter server (parameter_server.h) whose workers are its children.
#pragma once

#include <vector>

namespace tersewire {

// One node's place. Its children are consecutive ranks.
struct TreeNode {
  int parent = -1;  // none: the root
  int first_child = 0;
  int children = 0;  // 0: a worker
  int workers = 1;   // below it, or itself
};

// A tree whose leaves are ranks 0 to workers - 1, by rank: above each level one of aggregators with
// at most `fan_in` children each, until one, the root, is left, which has the last rank. Requires
// workers >= 1 and fan_in >= 2.
std::vector<TreeNode> make_tree(int workers, int fan_in);

}  // namespace tersewire
