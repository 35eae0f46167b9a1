"""What goes wrong in a cluster, on purpose; `make faults` takes longer over it than the default run.

Each test sees that no pod is lost, none bound twice and none wrongly, and prints how long it took until all was well.
What is broken, and the tests that break it (those elsewhere need no cluster, or are named for more than the fault):

| fault | test |
|---|---|
| a watch cut in the middle of a line, refused, or talking nonsense | test_nothing_is_missed_when_a_watch_is, |
| | test_no_line_of_a_watch_ends_the_scheduler_or_loses_a_pod |
| 410 in a storm | test_in_a_storm_of_410_pods_are_bound_all_the_same |
| a relist while binding | test_a_relist_in_the_middle_of_bindings_loses_and_doubles_nothing |
| 409, 429 with Retry-After, 5xx, a lost answer on a bind | test_bindings_survive |
| time-outs and slow answers on a bind | test_answers_that_come_late_or_never_are_asked_after, |
| | test_bindings_that_hang_hold_up_no_other_pod, |
| | test_an_api_server_that_answers_late_or_never_is_bound_to_in_the_end |
| the API server restarted, or away | test_an_api_server_that_is_restarted_in_the_middle_of_bindings, |
| | test_what_happened_while_the_api_server_was_away_is_caught_up_with, |
| | test_an_api_server_that_comes_later_than_the_scheduler_is_waited_for |
| everything at once | test_a_storm_of_all_of_them_loses_nothing |
| the leader killed (SIGKILL) in the middle of 2,000 bindings, or stopped (SIGSTOP) | |
| | test_when_the_leader_goes_in_the_middle_of_a_burst_the_standby_does_the_rest |
| a replica that follows another while pods wait and nothing else happens, a hundred times; the time that it costs | |
| | test_after_each_of_many_restarts_pods_that_wait_are_bound_soon_after_somebody_leads, |
| | test_the_lease_time_is_nearly_all_that_a_leader_that_is_killed_costs |
| a leader that goes on after it was stopped | test_a_leader_that_was_stopped_writes_nothing_when_it_continues |
| the scheduler killed again and again | test_a_scheduler_that_is_killed_again_and_again_leaves_no_pod_behind |
| a replica killed that shares the work | test_when_a_replica_is_killed_the_others_take_its_part_over |
| the clock set, the machine asleep | tests/daemon/test_clock_jumps.py, |
| | test_nothing_is_bound_after_a_sleep_before_the_lease_is_renewed |
| a node that is recreated under its name | test_a_recreated_smaller_node_is_not_overcommitted, |
| | test_a_node_that_comes_back_empty_takes_pods_again |
| a pod deleted while it is assumed | test_a_pod_deleted_while_it_is_assumed_gives_its_room_back |
| a pod that is recreated, or bound by another | test_a_recreated_pod_is_never_bound_by_the_decision_for_the_old_one, |
| | test_a_pod_that_another_scheduler_binds_at_the_same_moment_stays_there |
| Prometheus slow, wrong, gone | |
| | test_whatever_prometheus_answers_pods_are_placed_and_it_is_used_again_when_it_is_well |
| policies replaced a hundred times a minute, by good and broken sets | test_a_storm_of_good_and_broken_sets |
| memory over 200,000 pods created and deleted | test_nothing_is_kept_of_pods_that_are_gone |
| 100,000 pods pending | test_many_more_pods_than_there_is_room_for |
| 5,000 events a second | test_a_flood_of_node_updates_while_pods_come |
| one tenant's flood of pods that fit nowhere | test_one_tenants_flood_of_unschedulable_pods_delays_no_other_tenant |
| a burst between two scrapes | test_a_burst_is_spread_by_what_it_will_use_and_herds_without_that |
| the API server not hammered | |
| | test_two_requests_a_bound_pod_three_for_one_that_fits_nowhere_and_none_when_idle |

Whatever else can come in between: `make soak` (tests/simulation), in virtual time and by seed.
"""
