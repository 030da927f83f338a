# cmake --install: the program with its library of GPUs, links, models and clusters; and for C++ the
# headers and static libraries of what plans, lowers and simulates, as the package orrery
# (find_package(orrery), docs/howto/modules.md).
set(installed models_base models_config models_ir models_spec models_sharding models_schedule
  models_cost models_check models_lower models_reshard models_interfaces traces planners_kit
  planners planners_recovery sim_flow sim_platform sim_iteration sim_replay)
set(targets orrery_options)
set_target_properties(orrery_options PROPERTIES EXPORT_NAME options)
foreach(name ${installed})
  set_target_properties(orrery_${name} PROPERTIES EXPORT_NAME ${name})
  list(APPEND targets orrery_${name})
endforeach()

install(TARGETS orrery RUNTIME DESTINATION bin)
install(DIRECTORY models/library/ DESTINATION share/orrery/library)
install(TARGETS ${targets} EXPORT orrery
  ARCHIVE DESTINATION lib/orrery INCLUDES DESTINATION include/orrery)
install(DIRECTORY models traces planners sim DESTINATION include/orrery
  FILES_MATCHING PATTERN "*.h" PATTERN library EXCLUDE)
install(FILES ${CMAKE_BINARY_DIR}/generated/planners/modules/module_stamp.h
  DESTINATION include/orrery/planners/modules)

set(ORRERY_HAVE_CBC OFF)
if(TARGET PkgConfig::CBC)
  set(ORRERY_HAVE_CBC ON)
endif()
include(CMakePackageConfigHelpers)
set(package ${CMAKE_CURRENT_BINARY_DIR}/package)
configure_file(cmake/orrery-config.cmake.in ${package}/orrery-config.cmake @ONLY)
write_basic_package_version_file(${package}/orrery-config-version.cmake
  COMPATIBILITY ExactVersion)
install(FILES ${package}/orrery-config.cmake ${package}/orrery-config-version.cmake
  DESTINATION lib/cmake/orrery)
install(EXPORT orrery FILE orrery-targets.cmake NAMESPACE orrery:: DESTINATION lib/cmake/orrery)
