import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/**
 * Runs commands on Kafka's own Rate and TokenBucket: "new windows seconds bound", "rate value ms",
 * "bucket value ms". Prints the throttle time after each value.
 */
public class QuotaRates {
    public static void main(String[] arguments) throws Exception {
        MetricConfig config = null;
        double bound = 0;
        Rate rate = null;
        TokenBucket bucket = null;
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ");
            if (words[0].equals("new")) {
                bound = Double.parseDouble(words[3]);
                config = new MetricConfig()
                    .samples(Integer.parseInt(words[1]))
                    .timeWindow(Long.parseLong(words[2]), TimeUnit.SECONDS)
                    .quota(Quota.upperBound(bound));
                rate = new Rate();
                bucket = new TokenBucket();
                continue;
            }
            double value = Double.parseDouble(words[1]);
            long now = Long.parseLong(words[2]);
            long throttle = 0;
            if (words[0].equals("rate")) {
                rate.record(config, value, now);
                double observed = rate.measure(config, now);
                if (observed > bound)
                    throttle = Math.round((observed - bound) / bound * rate.windowSize(config, now));
            } else {
                bucket.record(config, value, now);
                double tokens = bucket.measure(config, now);
                if (tokens < 0)
                    throttle = Math.round(-tokens / bound * 1000);
            }
            out.append(throttle).append('\n');
        }
        System.out.print(out);
    }
}
