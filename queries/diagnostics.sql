-- diagnostics: What nsys itself says of the capture, and how often.
--
-- Messages of level warning or worse tell of events that were dropped. nsys 2023.4 exports no such table.
--
-- standalone: yes
-- requires: DIAGNOSTIC_EVENT(timestamp, severity, text)
-- column: severity INTEGER NULL 1 info, 2 warning, 3 error
-- column: message_count INTEGER [count] how often
-- column: first_ns INTEGER [ns] time stamp of the first
-- column: message TEXT what it says
-- order: severity DESC, message_count DESC, message
SELECT
  severity,
  count(*) AS message_count,
  min(timestamp) AS first_ns,
  text AS message
FROM DIAGNOSTIC_EVENT
GROUP BY severity, text
ORDER BY severity DESC, message_count DESC, message;
