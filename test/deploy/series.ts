/** What tells the series of one name apart, beside what Prometheus itself adds. */
interface Series {
  readonly labels: ReadonlyArray<string>
  readonly histogram?: true
}

/** Every series of the service, by the name that Prometheus gets. */
export const series: Readonly<Record<string, Series>> = {
  http_server_request_duration_seconds: {
    labels: ["http_request_method", "http_route", "http_response_status_code"],
    histogram: true
  },
  http_server_active_requests: { labels: [] },
  db_client_operation_duration_seconds: { labels: ["db_operation_name", "error_type"], histogram: true },
  byok_db_queue_wait_duration_seconds: { labels: ["lane"], histogram: true },
  byok_db_batch_size: { labels: ["db_operation_name"], histogram: true },
  byok_db_queue_depth: { labels: ["lane"] },
  byok_db_refusals_total: { labels: ["lane"] },
  byok_crypto_operation_duration_seconds: { labels: ["operation", "error_type"], histogram: true },
  byok_kek_wraps: { labels: ["kek_id"] },
  byok_kek_wraps_limit: { labels: [] },
  byok_keyring_reloads_total: { labels: ["result"] },
  byok_audit_unsealed_entries: { labels: [] },
  byok_ready: { labels: [] },
  byok_router_plans_total: { labels: ["result"] },
  byok_router_leases_total: { labels: ["result"] },
  byok_router_exclusions_total: { labels: ["reason"] },
  byok_router_parkings_total: { labels: ["cause"] },
  process_cpu_time_seconds_total: { labels: ["cpu_mode"] },
  process_memory_usage_bytes: { labels: [] },
  nodejs_eventloop_delay_p50_seconds: { labels: [] },
  nodejs_eventloop_delay_p99_seconds: { labels: [] },
  nodejs_eventloop_delay_max_seconds: { labels: [] },
  byok_build_info: { labels: ["version"] }
}
