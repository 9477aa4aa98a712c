-- Says in one line what a run has shown.
done = function(summary, latency, requests)
	local e = summary.errors
	io.write(string.format('RESULT {"Requests":%d,"Micros":%d,"Bad":%d,"Median":%.1f,"P99":%.1f}\n',
		summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
		latency:percentile(50), latency:percentile(99)))
end
