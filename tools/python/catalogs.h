/// Planners and policies of Python under names "file.py:Class", wherever C++ looks for one by name:
/// flags, manifests, replay studies, options of policies.
#pragma once

namespace orrery::python {

/// Tells both catalogs where such names come from. Once, when the module is loaded.
void offer_plugins();

}  // namespace orrery::python
