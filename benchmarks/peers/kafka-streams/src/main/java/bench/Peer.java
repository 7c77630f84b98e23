package bench;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.TimestampExtractor;

/**
 * Kafka Streams: counts in windows and sessions by its DSL, state in RocksDB with changelog topics.
 *
 * <p>Arguments: job, topic, servers, output, number of events, application id, folder of the state. It exits once
 * the results of all events are published.
 */
public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration TEN_MINUTES = Duration.ofMinutes(10);
    // A partition may be read far ahead of the other: with less, events of the slower partition would be dropped as late.
    private static final Duration GRACE = Duration.ofDays(7);

    private static final AtomicLong READ = new AtomicLong();
    private static final AtomicLong COUNTED = new AtomicLong();
    private static final CountDownLatch DONE = new CountDownLatch(1);

    private Peer() {}

    public static void main(String[] words) throws Exception {
        String job = words[0];
        long events = Long.parseLong(words[4]);
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> visits =
                builder.stream(words[1], Consumed.with(Serdes.String(), Serdes.String())
                        .withTimestampExtractor(new EventTime(events)));
        KStream<String, String> results = job.equals("counts") ? counts(visits, events) : sessions(visits, events);
        results.to(words[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(words));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        DONE.await();
        streams.close(Duration.ofSeconds(60));
        System.out.println("{\"events\": " + COUNTED.get() + "}");
    }

    private static KStream<String, String> counts(KStream<String, String> visits, long events) {
        return visits.groupBy((visit, value) -> "all", Grouped.with(Serdes.String(), Serdes.String()))
                .windowedBy(TimeWindows.ofSizeAndGrace(TEN_MINUTES, GRACE))
                .aggregate(() -> 0L, (key, value, count) -> seen(count + 1, events),
                        Materialized.with(Serdes.String(), Serdes.Long()))
                .toStream()
                .map((window, count) -> {
                    String start = window.window().startTime().toString();
                    return KeyValue.pair(start, "{\"window\":{\"start\":\"" + start + "\"},\"count\":" + count + "}");
                });
    }

    private static KStream<String, String> sessions(KStream<String, String> visits, long events) {
        return visits.groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(TEN_MINUTES, GRACE))
                .aggregate(() -> 0L, (visit, value, pages) -> seen(pages + 1, events),
                        (visit, first, second) -> first + second,
                        Materialized.with(Serdes.String(), Serdes.Long()))
                .toStream()
                .map((session, pages) -> {
                    String head = "{\"visit_id\":\"" + session.key() + "\",\"session_start\":\""
                            + session.window().startTime() + "\"";
                    // A session that grows has another end, and so another key: the result of the old key is deleted.
                    String value = pages == null ? null : head + ",\"session_end\":\"" + session.window().endTime()
                            + "\",\"visited_pages\":" + pages + ",\"is_finished\":false}";
                    return KeyValue.pair(head + "}", value);
                });
    }

    /** Counts an event that has reached the state, and returns its argument. */
    private static long seen(long value, long events) {
        if (COUNTED.incrementAndGet() == events) {
            DONE.countDown();
        }
        return value;
    }

    private static Properties settings(String[] words) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, words[5]);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[2]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, words[6]);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 64 * 1024 * 1024);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 10_000);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG), 10 * 1024 * 1024);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.FETCH_MAX_BYTES_CONFIG), 50 * 1024 * 1024);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 100);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 256 * 1024);
        return properties;
    }

    /**
     * The time of an event is in its value; its repartitioned copy has that time as its timestamp.
     *
     * <p>It is called once for each event that is read, and prints how many were read: between here and the state there
     * may be a topic, in which many events wait.
     */
    private static final class EventTime implements TimestampExtractor {
        private final long each;

        EventTime(long events) {
            each = Math.min(100_000, Math.max(1, events / 10));
        }

        @Override
        public long extract(ConsumerRecord<Object, Object> record, long partitionTime) {
            long read = READ.incrementAndGet();
            if (read % each == 0) {
                System.out.println("{\"events\": " + read + "}");
            }
            try {
                JsonNode event = JSON.readTree((String) record.value());
                Instant at = LocalDateTime.parse(event.get("event_time").asText()).toInstant(ZoneOffset.UTC);
                return at.toEpochMilli();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
