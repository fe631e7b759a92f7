#include "aggregator_tree.h"

#include <algorithm>
#include <cstddef>

namespace tersewire {

std::vector<TreeNode> make_tree(int workers, int fan_in) {
  std::vector<TreeNode> nodes(static_cast<std::size_t>(workers));
  int level_begin = 0;
  do {
    const int level_end = static_cast<int>(nodes.size());
    for (int first = level_begin; first < level_end; first += fan_in) {
      TreeNode node{.parent = -1,
                    .first_child = first,
                    .children = std::min(fan_in, level_end - first),
                    .workers = 0};
      const int rank = static_cast<int>(nodes.size());
      for (int child = first; child < first + node.children; ++child) {
        TreeNode& below = nodes[static_cast<std::size_t>(child)];
        below.parent = rank;
        node.workers += below.workers;
      }
      nodes.push_back(node);
    }
    level_begin = level_end;
  } while (static_cast<int>(nodes.size()) - level_begin > 1);
  return nodes;
}

}  // namespace tersewire
