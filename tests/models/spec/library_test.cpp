#include "models/spec/library.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "models/spec/schemas.h"
#include "tests/models/spec/support.h"

namespace orrery::models::library_test {
namespace {

TEST(Library, AnUnknownClusterIsReportedWhereItWasNamed) {
  Library library;
  library.clusters["hexiscale_240"] = "x.yaml";
  config::Diagnostics problems;
  load_cluster("hexiscale_24", library, {"m.yaml", 3, 10}, problems);
  load_cluster("no/such.yaml", library, {"m.yaml", 4, 10}, problems);
  ASSERT_EQ(problems.problems().size(), 2u);
  EXPECT_EQ(config::to_string(problems.problems()[0]),
            "m.yaml:3:10: unknown cluster 'hexiscale_24' (did you mean 'hexiscale_240'?)");
  EXPECT_EQ(config::to_string(problems.problems()[1]),
            "m.yaml:4:10: no such cluster file 'no/such.yaml'");
}

TEST(Library, AClusterFileIsFoundBesideTheFileThatNamesIt) {
  const std::string path = file_with("beside.yaml", R"(schema: orrery/cluster/1
name: beside
nodes: [{name: n, gpus: {type: A100}}]
)");
  config::Diagnostics problems;
  const Cluster cluster = load_cluster("./" + path.substr(path.rfind('/') + 1), small_library(),
                                       {::testing::TempDir() + "manifest.yaml", 1, 1}, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(cluster.size(), 1);
}

TEST(Library, TheEnvironmentNamesAnotherRoot) {
  ::setenv("ORRERY_LIBRARY", "/somewhere", 1);
  EXPECT_EQ(default_library_root(), "/somewhere");
  ::unsetenv("ORRERY_LIBRARY");
  EXPECT_TRUE(default_library_root().ends_with("/models/library"));
}

TEST(Library, AMissingFolderIsAProblem) {
  config::Diagnostics problems;
  load_library("/no/such/folder", problems);
  EXPECT_EQ(problems.problems().size(), 2u);
}

TEST(Schemas, EveryKindHasASchemaAndAPage) {
  for (const std::string& kind : schema_kinds()) {
    EXPECT_NE(json_schema_of(kind).find("\"const\": \"orrery/" + kind + "/1\""), std::string::npos);
    EXPECT_NE(reference_page_of(kind).find("| `schema` | `orrery/" + kind + "/1`"),
              std::string::npos)
        << kind;
  }
}

TEST(Schemas, ANodesOnlyItemMayStandWithoutAList) {
  const std::string schema = json_schema_of("cluster");
  EXPECT_NE(schema.find("anyOf", schema.find("\"nics\"")), std::string::npos);
}

}  // namespace
}  // namespace orrery::models::library_test
