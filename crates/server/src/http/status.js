// Asks for /status.json twice a second and shows what it says. A chart keeps two minutes.
"use strict";

const POINTS = 240;
const PERIOD_MS = 500;
const rates = [];
let previous = null;

const put = (id, text) => { document.getElementById(id).textContent = text; };
const count = (n) => (n ?? 0).toLocaleString("en-US");

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = n ?? 0;
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${at === 0 ? value : value.toFixed(1)} ${units[at]}`;
}

function time(seconds) {
  const s = Math.floor(seconds ?? 0);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

function stage(name) {
  const element = document.getElementById("stage");
  element.textContent = name;
  element.className = `stage ${name}`;
}

function alarms(list) {
  const element = document.getElementById("alarms");
  element.hidden = list.length === 0;
  element.replaceChildren(...list.map(({ name, why }) => {
    const line = document.createElement("li");
    line.textContent = `${name}: ${why}`;
    return line;
  }));
}

function throughput(now) {
  const at = performance.now();
  let rate = now.instantaneous_ops_per_sec ?? 0;
  if (previous && at > previous.at && now.total_commands_processed >= previous.commands) {
    rate = Math.round((now.total_commands_processed - previous.commands) * 1000 / (at - previous.at));
  }
  previous = { at, commands: now.total_commands_processed };
  rates.push(rate);
  if (rates.length > POINTS) rates.shift();
  const top = Math.max(1, ...rates);
  const points = rates.map((r, i) => `${i + POINTS - rates.length},${(58 - 56 * r / top).toFixed(1)}`);
  document.getElementById("line").setAttribute("points", points.join(" "));
  put("throughput", count(rate));
}

function checkpoint(now) {
  const sweep = document.getElementById("sweep");
  sweep.hidden = now.checkpoint_running !== 1;
  sweep.value = now.checkpoint_partitions_done ?? 0;
  if (now.checkpoint_running === 1) {
    put("checkpoint", `running, ${now.checkpoint_partitions_done ?? 0} partitions swept`);
  } else if (now.checkpoint_completed > 0) {
    const ago = Date.now() / 1000 - now.checkpoint_last_end_us / 1e6;
    put("checkpoint", `${count(now.checkpoint_completed)} done, the last ${time(Math.max(0, ago))} ago`);
  } else {
    put("checkpoint", "none yet");
  }
}

function show(now) {
  stage(now.stage);
  alarms(now.alarms ?? []);
  put("version", now.perdura_version);
  put("uptime", `up ${time(now.uptime_in_seconds)}`);
  const loads = now.stage === "loading";
  document.getElementById("restart").hidden = !loads;
  if (loads) {
    document.getElementById("loading").value = now.loading_percent ?? 0;
    put("loading-percent", now.loading_percent ?? 0);
    put("loading-phase", now.loading_phase);
    put("loading-eta", now.loading_eta_seconds >= 0 ? `about ${time(now.loading_eta_seconds)} left` : "time left not known yet");
  }
  throughput(now);
  put("commands", count(now.total_commands_processed));
  put("errors", count(now.total_error_replies));
  put("clients", count(now.connected_clients));
  put("keys", count(now.keys));
  put("lag", ((now.log_durable_lag_us ?? 0) / 1000).toFixed(1));
  put("lag-max", ((now.log_durable_lag_max_us ?? 0) / 1000).toFixed(1));
  put("mirror-lag", ((now.log_mirror_lag_us ?? 0) / 1000).toFixed(1));
  put("unsynced", bytes(now.log_unsynced_bytes));
  put("unsynced-max", bytes(now.log_unsynced_max_bytes));
  put("durable", count(now.log_durable_epoch));
  put("epoch", count(now.log_epoch));
  put("logged", bytes(now.log_log_device_bytes));
  put("syncs", count(now.log_syncs));
  put("log-bytes", bytes(now.log_file_bytes));
  checkpoint(now);
  put("memory", bytes(now.used_memory));
  put("memory-max", now.maxmemory > 0 ? bytes(now.maxmemory) : "none");
  document.getElementById("memory-share").value = now.maxmemory > 0 ? 100 * now.used_memory / now.maxmemory : 0;
  if (now.restart_seconds_total != null) {
    const read = bytes((now.restart_bytes_log ?? 0) + (now.restart_bytes_backup ?? 0));
    put("last-restart", `${now.restart_seconds_total.toFixed(2)} s for ${read}, ${count(now.restart_rows)} rows`);
  }
}

async function ask() {
  try {
    const answer = await fetch("status.json", { cache: "no-store" });
    if (answer.ok) show(await answer.json());
    else stage("busy");
  } catch {
    stage("gone");
  }
  setTimeout(ask, PERIOD_MS);
}

ask();
